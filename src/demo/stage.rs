//! What `demo` and `dev` stand on: a private Postgres with the schema, and workers in this process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Client;

use super::{Error, sql};
use crate::admin::Telemetry;
use crate::connect::Database;
use crate::embedded::Embedded;
use crate::{schema, worker};

const DATABASE: &str = "postrider";

/// A private Postgres with Postrider installed and plain HTTP allowed, and workers that deliver.
pub struct Stage {
    server: Embedded,
    database: Database,
    stop: watch::Sender<bool>,
    workers: JoinSet<Result<(), worker::Error>>,
}

impl Stage {
    /// Starts Postgres and installs; no worker yet.
    pub async fn start() -> Result<Self, Error> {
        let server = Embedded::start(&[]).await?;
        let postgres = Database::new(Some(&server.url("postgres")))?;
        sql::create_database(&postgres.connect().await?, DATABASE).await?;
        let database = Database::new(Some(&server.url(DATABASE)))?;
        schema::migrate(&database).await?;
        sql::allow_http(&database.connect().await?).await?;
        Ok(Self {
            server,
            database,
            stop: watch::Sender::new(false),
            workers: JoinSet::new(),
        })
    }

    /// Starts one more worker, with the settings that `postrider worker` has by itself.
    pub fn add_worker(&mut self, name: &str) -> Result<(), Error> {
        let loopback = "127.0.0.0/8".parse().map_err(std::io::Error::other)?;
        let options = worker::Options {
            name: name.to_owned(),
            max_in_flight: 500,
            poll_interval: Duration::from_secs(5),
            lease: Duration::from_secs(30),
            pool_size: 4,
            allow_networks: vec![loopback],
            listen: None,
        };
        self.workers.spawn(worker::run(
            self.database.named("postrider worker"),
            options,
            Arc::new(Telemetry::new()),
            self.stop.subscribe(),
        ));
        Ok(())
    }

    /// Waits until all of them are registered.
    pub async fn registered(&self, client: &Client) -> Result<(), Error> {
        let wanted = i64::try_from(self.workers.len()).unwrap_or(i64::MAX);
        let deadline = Instant::now() + Duration::from_secs(10);
        while sql::workers(client).await? < wanted {
            if Instant::now() > deadline {
                return Err(Error::Late("the registration of the workers"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// A connection of the application or the operator.
    pub async fn connect(&self) -> Result<Client, Error> {
        Ok(self.database.named("postrider demo").connect().await?)
    }

    /// The URL to connect to.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(DATABASE)
    }

    /// Returns when a worker has ended by itself, which none should.
    pub async fn worker_ended(&mut self) -> Error {
        match self.workers.join_next().await {
            Some(Ok(Err(error))) => error.into(),
            Some(Err(error)) => std::io::Error::from(error).into(),
            Some(Ok(Ok(()))) => Error::Late("a worker that ended by itself"),
            None => std::future::pending().await,
        }
    }

    /// Lets the workers finish; Postgres and its directory go at once, nobody needs them any more.
    pub async fn end(mut self) -> Result<(), Error> {
        self.stop.send_replace(true);
        while let Some(ended) = self.workers.join_next().await {
            ended.map_err(std::io::Error::from)??;
        }
        Ok(())
    }
}
