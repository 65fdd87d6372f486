//! The lease: registering, beating, and knowing when to stop.
//!
//! A worker id is one unbroken lease. The owner counts from the moment it *sent* the confirmed beat, on a
//! clock that runs through suspend, minus a margin; a peer counts a full lease of its own time from the
//! moment it *saw* the beat. So the owner has stopped before any peer takes over, and no step of any clock,
//! the database's included, can end a lease early.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio_postgres::Client;
use uuid::Uuid;

use super::clock::DatabaseClock;
use crate::{
    connect::Database,
    db::{self, Beat, DbError},
};

#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Time since boot, suspend included.
fn uptime() -> Duration {
    // The clock exists on every system this builds for; were it missing, a lease would look expired.
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

/// What the tasks of a worker know of its lease.
#[derive(Debug)]
pub struct Lease {
    /// The worker's id: fresh with each lease.
    pub worker: Uuid,
    valid_until_ns: AtomicU64,
    lost: AtomicBool,
    clock: Mutex<DatabaseClock>,
    live_workers: AtomicUsize,
    owned_in_all: AtomicI64,
    changed: Notify,
}

impl Lease {
    fn new(worker: Uuid, clock: DatabaseClock, live_workers: usize, valid_until: Duration) -> Self {
        Self {
            worker,
            valid_until_ns: AtomicU64::new(nanos(valid_until)),
            lost: AtomicBool::new(false),
            clock: Mutex::new(clock),
            live_workers: AtomicUsize::new(live_workers),
            owned_in_all: AtomicI64::new(0),
            changed: Notify::new(),
        }
    }

    /// Whether the lease holds at this moment. The last test before a request's first byte.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.lost.load(Ordering::Acquire)
            && nanos(uptime()) < self.valid_until_ns.load(Ordering::Acquire)
    }

    /// How long it holds yet unless another beat is confirmed.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let until = self.valid_until_ns.load(Ordering::Acquire);
        Duration::from_nanos(until.saturating_sub(nanos(uptime())))
    }

    /// The database clock, carried forward by this machine's uptime, in microseconds since 1970.
    #[must_use]
    pub fn database_us(&self) -> i64 {
        let clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.at(uptime())
    }

    /// Live workers of the fleet, this one included, as of the last beat.
    #[must_use]
    pub fn live_workers(&self) -> usize {
        self.live_workers.load(Ordering::Relaxed).max(1)
    }

    /// Endpoints owned over the fleet, as of the last beat.
    #[must_use]
    pub fn owned_in_all(&self) -> usize {
        usize::try_from(self.owned_in_all.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Resolves at the next beat, or when the lease is lost.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Keeps a lease alive on a connection of its own, until it is lost.
pub struct Keeper {
    database: Database,
    connection: Option<Client>,
    lease: Arc<Lease>,
    length: Duration,
    watched: HashMap<Uuid, (i64, Duration)>,
    confirmed: Duration,
}

impl Keeper {
    /// Registers a worker under a fresh id. `length` is the lease.
    pub async fn register(
        database: &Database,
        name: &str,
        length: Duration,
    ) -> Result<(Self, Arc<Lease>), super::Error> {
        let connection = database.connect().await?;
        let sent = uptime();
        let answer = db::register(&connection, name, env!("CARGO_PKG_VERSION"));
        let (worker, peers, clock_us) = tokio::time::timeout(length / 3, answer)
            .await
            .map_err(|_| DbError::Connection("no answer to registering".into()))??;
        let lease = Arc::new(Lease::new(
            worker,
            DatabaseClock::first(clock_us, sent, uptime()),
            peers.len(),
            sent + length - length / 6,
        ));
        let mut keeper = Self {
            database: database.clone(),
            connection: Some(connection),
            lease: lease.clone(),
            length,
            watched: HashMap::new(),
            confirmed: sent,
        };
        // From when they were seen, not asked for: a peer's silence is never counted from too early.
        keeper.watch(&peers, uptime());
        Ok((keeper, lease))
    }

    /// Beats until the lease is lost.
    pub async fn keep(mut self) {
        let beat = self.length / 6;
        loop {
            let next = self.confirmed + beat;
            tokio::time::sleep(next.saturating_sub(uptime()).min(beat)).await;
            while let Err(error) = self.beat().await {
                if matches!(error, super::Error::Db(DbError::LeaseGone(_))) || !self.lease.holds() {
                    tracing::warn!(worker = %self.lease.worker, %error, "the lease is lost");
                    self.lease.lose();
                    return;
                }
                tracing::warn!(worker = %self.lease.worker, %error, "a heartbeat failed");
                self.connection = None;
                tokio::time::sleep(beat / 10).await;
            }
            self.lease.changed.notify_one();
        }
    }

    async fn beat(&mut self) -> Result<(), super::Error> {
        if !self.lease.holds() {
            return Err(DbError::LeaseGone("it was not confirmed in time".into()).into());
        }
        let limit = self.length / 6;
        let connection = match self.connection.take() {
            Some(connection) if !connection.is_closed() => connection,
            _ => tokio::time::timeout(limit, self.database.connect())
                .await
                .map_err(|_| DbError::Connection("connecting took too long".into()))??,
        };
        let sent = uptime();
        // Peers could not beat either while the database was away: count their silence anew.
        if sent.saturating_sub(self.confirmed) > self.length / 2 {
            self.watched.values_mut().for_each(|seen| seen.1 = sent);
        }
        let dead: Vec<Beat> = self
            .watched
            .iter()
            .filter(|(_, (_, since))| sent.saturating_sub(*since) >= self.length)
            .map(|(&worker, &(beat, _))| Beat { worker, beat })
            .collect();
        let answer = db::heartbeat(&connection, self.lease.worker, &dead);
        let (peers, clock_us, owned) = tokio::time::timeout(limit, answer)
            .await
            .map_err(|_| DbError::Connection("no answer to a heartbeat".into()))??;
        self.connection = Some(connection);
        self.confirmed = sent;
        let until = sent + self.length - self.length / 6;
        self.lease
            .valid_until_ns
            .store(nanos(until), Ordering::Release);
        self.lease
            .clock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .hear(clock_us, sent, uptime());
        self.lease
            .live_workers
            .store(peers.len(), Ordering::Relaxed);
        self.lease.owned_in_all.store(owned, Ordering::Relaxed);
        self.watch(&peers, uptime());
        Ok(())
    }

    fn watch(&mut self, peers: &[Beat], now: Duration) {
        let seen: HashMap<Uuid, (i64, Duration)> = peers
            .iter()
            .filter(|peer| peer.worker != self.lease.worker)
            .map(|peer| match self.watched.get(&peer.worker) {
                Some(&(beat, since)) if beat == peer.beat => (peer.worker, (beat, since)),
                _ => (peer.worker, (peer.beat, now)),
            })
            .collect();
        self.watched = seen;
    }
}
