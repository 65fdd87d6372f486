//! What `demo` and `dev` stand on: a private Postgres with the schema, and workers in this process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{Error, sql};
use crate::admin::Telemetry;
use crate::connect::Database;
use crate::delivery::Resolver;
use crate::embedded::Embedded;
use crate::{schema, worker};

const DATABASE: &str = "postrider";

/// A private Postgres with Postrider installed and plain HTTP allowed, and workers that deliver.
pub struct Stage {
    server: Embedded,
    database: Database,
    stops: Stops,
    workers: JoinSet<Result<(), worker::Error>>,
}

/// Stops workers.
#[derive(Clone, Debug, Default)]
pub struct Stops(HashMap<String, watch::Sender<bool>>);

impl Stops {
    /// Asks one to stop; false if there is none of that name.
    #[must_use]
    pub fn stop(&self, worker: &str) -> bool {
        self.0.get(worker).is_some_and(|s| !s.send_replace(true))
    }
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
            stops: Stops::default(),
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
            resolver: Resolver::default(),
            drain_limit: worker::DRAIN_LIMIT,
        };
        let stop = watch::Sender::new(false);
        self.workers.spawn(worker::run(
            self.database.named("postrider worker"),
            options,
            Arc::new(Telemetry::new()),
            stop.subscribe(),
        ));
        self.stops.0.insert(name.to_owned(), stop);
        Ok(())
    }

    /// Waits until all of them are registered; their names by id.
    pub async fn registered(&self, client: &Client) -> Result<HashMap<Uuid, String>, Error> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let workers = sql::workers(client).await?;
            if workers.len() == self.workers.len() {
                return Ok(workers);
            }
            if Instant::now() > deadline {
                return Err(Error::Late("the registration of the workers"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// To stop a worker by its name, as SIGTERM would.
    #[must_use]
    pub fn stops(&self) -> Stops {
        self.stops.clone()
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

    /// Returns when a worker has failed, which none should.
    pub async fn worker_failed(&mut self) -> Error {
        loop {
            match self.workers.join_next().await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return error.into(),
                Some(Err(error)) => return std::io::Error::from(error).into(),
                None => std::future::pending().await,
            }
        }
    }

    /// Lets the workers finish; Postgres and its directory go at once, nobody needs them any more.
    pub async fn end(mut self) -> Result<(), Error> {
        for stop in self.stops.0.values() {
            stop.send_replace(true);
        }
        while let Some(ended) = self.workers.join_next().await {
            ended.map_err(std::io::Error::from)??;
        }
        Ok(())
    }
}
