//! Events emitted and delivered at the same time, at a rate or as fast as they are delivered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::cluster::Cluster;
use super::receiver::Receiver;
use super::stats::rate;
use super::{Result, load, table};

const EVENTS_PER_TRANSACTION: i32 = 20;
const SESSIONS: usize = 4;
const ENDPOINTS: u32 = 10;
const SAMPLE: Duration = Duration::from_millis(500);

/// How fast events are emitted.
#[derive(Clone, Copy)]
pub enum Load {
    /// Events per second, whatever becomes of them.
    PerSecond(f64),
    /// As many as keep this many undelivered.
    Undelivered(u64),
}

/// What a run showed.
pub struct Seen {
    /// When COMMIT was called, by event.
    pub committed: HashMap<Uuid, Instant>,
    /// Undelivered events, twice a second.
    pub undelivered: Vec<u64>,
    /// Requests in each half second.
    pub arrived: Vec<u64>,
    pub took: Duration,
}

impl Seen {
    /// Deliveries per second.
    pub fn delivered(&self) -> f64 {
        rate(self.arrived.iter().sum(), self.took)
    }

    pub fn emitted(&self) -> f64 {
        rate(self.committed.len() as u64, self.took)
    }

    /// Undelivered events on average over the first and the last quarter.
    pub fn drift(&self) -> (f64, f64) {
        let quarter = (self.undelivered.len() / 4).max(1);
        let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64;
        let last = self.undelivered.len().saturating_sub(quarter);
        let first = self.undelivered.get(..quarter).unwrap_or_default();
        (
            mean(first),
            mean(self.undelivered.get(last..).unwrap_or_default()),
        )
    }
}

/// Sessions that emit events to endpoints that answer at once.
pub struct Flow<'a> {
    receiver: &'a Receiver,
    sessions: Vec<(Client, Statement)>,
    emitted: AtomicU64,
}

impl<'a> Flow<'a> {
    pub async fn new(cluster: &Cluster, receiver: &'a Receiver) -> Result<Self> {
        cluster
            .unlimited_endpoints(&receiver.base(), ENDPOINTS)
            .await?;
        let sql = format!(
            "select postrider.emit_event('bench.' || n % {ENDPOINTS}, $1::text)
               from generate_series(1, {EVENTS_PER_TRANSACTION}) n"
        );
        let mut sessions = Vec::new();
        for _ in 0..SESSIONS {
            let client = cluster.connect().await?;
            let emit = client.prepare(&sql).await?;
            sessions.push((client, emit));
        }
        Ok(Self {
            receiver,
            sessions,
            emitted: AtomicU64::new(0),
        })
    }

    pub fn undelivered(&self) -> u64 {
        let emitted = self.emitted.load(Ordering::Relaxed);
        emitted.saturating_sub(self.receiver.count())
    }

    /// Emits for this long, 20 events a transaction.
    pub async fn run(&self, load: Load, time: Duration) -> Result<Seen> {
        let start = Instant::now();
        let emitting = try_join_all(
            self.sessions
                .iter()
                .map(|s| self.emit(s, load, start, time)),
        );
        let (committed, (undelivered, arrived)) = tokio::join!(emitting, self.sample(start, time));
        Ok(Seen {
            committed: committed?.into_iter().flatten().collect(),
            undelivered,
            arrived,
            took: start.elapsed(),
        })
    }

    /// Waits until all is delivered.
    pub async fn drained(&self, limit: Duration) -> Result<()> {
        let all = self.emitted.load(Ordering::Relaxed);
        self.receiver.reached(all, limit).await
    }

    async fn emit(
        &self,
        (client, emit): &(Client, Statement),
        load: Load,
        start: Instant,
        time: Duration,
    ) -> Result<Vec<(Uuid, Instant)>> {
        let body = load::body(1024);
        let mut committed = Vec::new();
        for n in 0_u32.. {
            match load {
                Load::PerSecond(rate) => {
                    let per_second = rate / f64::from(EVENTS_PER_TRANSACTION) / SESSIONS as f64;
                    let at = start + Duration::from_secs_f64(f64::from(n) / per_second);
                    tokio::time::sleep_until(at.into()).await;
                }
                Load::Undelivered(most) => {
                    while self.undelivered() >= most && start.elapsed() < time {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
            }
            if start.elapsed() >= time {
                break;
            }
            let params: [&(dyn ToSql + Sync); 1] = [&body];
            let (begun, rows) = tokio::join!(
                biased;
                client.batch_execute("begin"),
                client.query(emit, &params),
            );
            begun?;
            let rows = rows?;
            // Counted before anything of it can arrive.
            self.emitted.fetch_add(rows.len() as u64, Ordering::Relaxed);
            let at = Instant::now();
            client.batch_execute("commit").await?;
            for row in rows {
                committed.push((row.try_get(0)?, at));
            }
        }
        Ok(committed)
    }

    async fn sample(&self, start: Instant, time: Duration) -> (Vec<u64>, Vec<u64>) {
        let (mut undelivered, mut arrived) = (Vec::new(), Vec::new());
        let mut before = self.receiver.count();
        let mut tick = tokio::time::interval(SAMPLE);
        tick.tick().await;
        while start.elapsed() < time {
            tick.tick().await;
            let now = self.receiver.count();
            arrived.push(now - before);
            before = now;
            undelivered.push(self.undelivered());
            table::progress(format_args!(
                "{:.0} of {:.0} s",
                start.elapsed().as_secs_f64(),
                time.as_secs_f64()
            ));
        }
        table::progress("");
        (undelivered, arrived)
    }
}
