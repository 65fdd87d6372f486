//! A private Postgres with the schema, as installed: no setting is changed, so every commit is flushed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use postrider::connect::Database;
use postrider::embedded::Embedded;
use postrider::schema;
use tokio_postgres::Client;
use tokio_postgres::types::FromSqlOwned;

use super::{Result, cpu};

const DATABASE: &str = "bench";

/// `patient` without a pace that could be noticed.
const UNLIMITED: &str = "insert into postrider.policies
    select (jsonb_populate_record(p, '{\"name\": \"unlimited\", \"rate\": 100000, \"burst\": 100000, \"concurrency\": 500}')).*
      from postrider.policies p where p.name = 'patient'";

/// A private Postgres. Dropping it stops and removes it.
pub struct Cluster {
    server: Embedded,
    database: Database,
    pub sql: Client,
}

impl Cluster {
    /// Starts one, installs the schema, allows plain HTTP, adds the policy `unlimited`.
    pub async fn start() -> Result<Self> {
        let server = Embedded::start(&[]).await?;
        let postgres = Database::new(Some(&server.url("postgres")))?
            .connect()
            .await?;
        postgres
            .batch_execute(&format!("create database {DATABASE}"))
            .await?;
        let database = Database::new(Some(&server.url(DATABASE)))?.named("bench");
        schema::migrate(&database).await?;
        let sql = database.connect().await?;
        sql.batch_execute("update postrider.settings set allow_http = true")
            .await?;
        sql.batch_execute(UNLIMITED).await?;
        Ok(Self {
            server,
            database,
            sql,
        })
    }

    pub fn url(&self) -> String {
        self.server.url(DATABASE)
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    pub fn data_dir(&self) -> PathBuf {
        self.server.data_dir()
    }

    /// Another session.
    pub async fn connect(&self) -> Result<Client> {
        Ok(self.database.connect().await?)
    }

    pub async fn run(&self, sql: &str) -> Result<()> {
        Ok(self.sql.batch_execute(sql).await?)
    }

    pub async fn one<T: FromSqlOwned>(&self, sql: &str) -> Result<T> {
        Ok(self.sql.query_one(sql, &[]).await?.try_get(0)?)
    }

    /// Makes an endpoint; `settings` are further named arguments.
    pub async fn endpoint(&self, url: &str, settings: &str) -> Result<i64> {
        let sql =
            format!("select endpoint_id from postrider.create_endpoint(url => $1, {settings})");
        Ok(self.sql.query_one(&sql, &[&url]).await?.try_get(0)?)
    }

    /// Makes endpoints 0 to `count` - 1 at `base`/n, each subscribed to `type`.n alone.
    pub async fn endpoints(
        &self,
        base: &str,
        event_type: &str,
        count: u32,
        settings: &str,
    ) -> Result<()> {
        let sql = format!(
            "select count(c.endpoint_id) from generate_series(0, $3::int - 1) n
              cross join lateral postrider.create_endpoint(
                  url => $1 || '/' || n, event_types => array[$2 || '.' || n], {settings}) c"
        );
        let count = i32::try_from(count)?;
        self.sql
            .execute(&sql, &[&base, &event_type, &count])
            .await?;
        Ok(())
    }

    /// The same without a pace, of type `bench`.
    pub async fn unlimited_endpoints(&self, base: &str, count: u32) -> Result<()> {
        self.endpoints(base, "bench", count, "policy => 'unlimited'")
            .await
    }

    /// Statistics and flushed pages, as a database that has lived a little has them.
    pub async fn settle_down(&self) -> Result<()> {
        self.run("vacuum analyze").await?;
        self.run("checkpoint").await
    }

    /// Waits until nothing is owed any more.
    pub async fn nothing_owed(&self, limit: Duration) -> Result<()> {
        let sql = "select not exists (select from postrider.outbox) and not exists (select from postrider.pending)";
        self.until(sql, limit).await
    }

    /// Waits until a query says true.
    pub async fn until(&self, sql: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while !self.one::<bool>(sql).await? {
            if Instant::now() > deadline {
                return Err(format!("not within {limit:?}: {sql}").into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Processor time of all its processes so far.
    pub fn cpu(&self) -> Duration {
        let pid = std::fs::read_to_string(self.data_dir().join("postmaster.pid"));
        let pid = pid
            .ok()
            .and_then(|text| text.lines().next()?.trim().parse().ok());
        pid.map_or(Duration::ZERO, cpu::of_family)
    }
}
