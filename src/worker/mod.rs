//! The worker: one lease after another, each a loop over the endpoints it owns.
//!
//! - [`lease`] registers and beats; it knows when the worker must stop. `clock` is the database's time.
//! - `wake` listens; `refill` fans out, claims and fetches; `endpoint` is what is held of an endpoint,
//!   `gate` whether its next request may leave, `pace` its rate.
//! - `sending` turns deliveries into requests and answers into outcomes; `reporting` stores them.
//! - `sharing` gives endpoints up. `engine` is the loop that calls all of these, `events` what comes back to it.

mod clock;
mod endpoint;
mod engine;
mod events;
mod gate;
pub mod lease;
pub mod pace;
mod refill;
mod reporting;
mod sending;
mod sharing;
mod target;
mod wake;

use std::{sync::Arc, time::Duration};

use ipnet::IpNet;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    admin::Telemetry,
    connect::{ConnectError, Database},
    db::{Db, DbError},
    delivery::{AddressGuard, Resolver, Sender},
};
use engine::{End, Engine};
use lease::Keeper;

/// How a worker works.
#[derive(Debug, Clone)]
pub struct Options {
    /// For people: shown in `status` and in the `workers` table.
    pub name: String,
    /// Most requests open at once, over all endpoints.
    pub max_in_flight: usize,
    /// How often to look for work without being told.
    pub poll_interval: Duration,
    /// How long a silent worker keeps its endpoints. It beats six times as often.
    pub lease: Duration,
    /// Connections for calls; heartbeats and LISTEN have their own.
    pub pool_size: usize,
    /// Networks that requests may go to although they are loopback, private or reserved.
    pub allow_networks: Vec<IpNet>,
    /// Where to LISTEN, when calls go through a transaction-pooling proxy.
    pub listen: Option<Database>,
    /// Finds the addresses of endpoints.
    pub resolver: Resolver,
    /// How long a stopping worker waits for the database to take its last outcomes, twice over.
    pub drain_limit: Duration,
}

/// Host name and process id: a name for people, on which nothing depends.
#[must_use]
pub fn default_name() -> String {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|h| h.into_string().ok());
    format!(
        "{}/{}",
        host.as_deref().unwrap_or("worker"),
        std::process::id()
    )
}

/// Why a worker could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A call failed.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The client for requests cannot be set up.
    #[error("the HTTP client cannot be set up: {0}")]
    Sender(String),
    /// Told to stop, but outcomes could not be stored in time; their deliveries will be sent again.
    #[error(
        "stopped with {0} outcomes that could not be stored; their deliveries will be sent again"
    )]
    Undrained(usize),
}

/// The [`Options::drain_limit`] of the program.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Delivers until `stop` turns true; then requests under way finish and are reported, endpoints are
/// released, and it returns.
pub async fn run(
    database: Database,
    options: Options,
    telemetry: Arc<Telemetry>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let guard = AddressGuard::new(options.allow_networks.clone());
    let sender =
        Sender::new(guard, options.resolver.clone()).map_err(|e| Error::Sender(e.to_string()))?;
    let db = Db::new(database.pool(options.pool_size)?);
    let (hints, mut inbox) = mpsc::unbounded_channel();
    let listening = options.listen.clone().unwrap_or_else(|| database.clone());
    // In a set, as the heartbeats are: whoever drops this future must not leave a lease that nobody works under.
    let mut listener = JoinSet::new();
    listener.spawn(wake::listen(listening, database.clone(), hints));
    leases(
        &database, &db, &sender, &options, &telemetry, &mut inbox, &mut stop,
    )
    .await
}

async fn leases(
    database: &Database,
    db: &Db,
    sender: &Sender,
    options: &Options,
    telemetry: &Arc<Telemetry>,
    hints: &mut mpsc::UnboundedReceiver<engine::Event>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut delay = Duration::from_millis(100);
    let mut ending = JoinSet::new();
    while !*stop.borrow() {
        let (keeper, lease) = match Keeper::register(database, &options.name, options.lease).await {
            Ok(registered) => registered,
            Err(error) => {
                tracing::warn!(%error, "registering failed; trying again");
                telemetry.health.turned();
                telemetry.health.claim_failed();
                tokio::select! {
                    () = tokio::time::sleep(delay.mul_f64(rand::random_range(0.5..1.5))) => {}
                    _ = stop.changed() => {}
                }
                delay = (delay * 2).min(Duration::from_secs(5));
                continue;
            }
        };
        delay = Duration::from_millis(100);
        let worker = lease.worker;
        tracing::info!(%worker, name = options.name, "registered");
        let mut beating = JoinSet::new();
        beating.spawn(keeper.keep());
        // Events of an ended lease must not reach the next one: each has a channel of its own, into which
        // the listener's hints are passed on.
        let (events, mut inbox) = mpsc::unbounded_channel();
        let mut engine = Engine::new(
            db.clone(),
            lease,
            sender.clone(),
            options.clone(),
            telemetry.clone(),
            events.clone(),
        );
        let end = {
            let forward = async {
                while let Some(hint) = hints.recv().await {
                    if events.send(hint).is_err() {
                        break;
                    }
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                end = engine.run(&mut inbox, stop) => end,
                () = forward => End::Lost,
            }
        };
        drop(beating);
        // A report under way when the lease was lost comes back through the channel.
        let outcomes = engine.into_outcomes(&mut inbox).await;
        tracing::info!(%worker, ?end, "lease ended");
        // Beside the next lease: one outcome that cannot be stored must not keep the worker from the rest. What
        // they concern is owned under the old id until they are stored.
        ending.spawn(end_lease(
            db.clone(),
            worker,
            end == End::Lost,
            outcomes,
            options.drain_limit,
            stop.clone(),
        ));
    }
    let mut left = 0;
    while let Some(undrained) = ending.join_next().await {
        left += undrained.unwrap_or(0);
    }
    if left > 0 {
        return Err(Error::Undrained(left));
    }
    Ok(())
}

/// Stores what is left of a lease and deregisters. Returns how many outcomes could not be stored.
async fn end_lease(
    db: Db,
    worker: uuid::Uuid,
    lapsed: bool,
    outcomes: Vec<crate::db::Attempt>,
    drain: Duration,
    stop: watch::Receiver<bool>,
) -> usize {
    let left = settle_old(&db, worker, outcomes, drain, &stop).await;
    // What is left will be sent again: where every start ends like this, it must be ever later.
    let lapsed = lapsed || left > 0;
    if tokio::time::timeout(drain, deregister(&db, worker, lapsed))
        .await
        .is_err()
    {
        tracing::warn!(%worker, "could not deregister; peers will end the lease");
    }
    left
}

/// Reports what is left under the old id, for as long as it takes, unless told to stop. Returns how many
/// outcomes could not be stored.
async fn settle_old(
    db: &Db,
    worker: uuid::Uuid,
    mut outcomes: Vec<crate::db::Attempt>,
    drain: Duration,
    stop: &watch::Receiver<bool>,
) -> usize {
    let mut since_stop = None;
    while !outcomes.is_empty() {
        let reported = reporting::store(db, worker, reporting::Part::All, outcomes).await;
        outcomes = reported
            .unstored
            .into_iter()
            .chain(reported.stuck)
            .collect();
        if outcomes.is_empty() {
            break;
        }
        if *stop.borrow() {
            let since = *since_stop.get_or_insert_with(std::time::Instant::now);
            if since.elapsed() > drain {
                return outcomes.len();
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    0
}

async fn deregister(db: &Db, worker: uuid::Uuid, lapsed: bool) {
    while let Err(error) = db.deregister(worker, lapsed).await {
        tracing::warn!(%worker, %error, "deregistering failed; trying again");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
