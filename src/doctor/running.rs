//! How the installation runs: partitions, workers, endpoints, and what else goes on in the cluster.

use std::time::SystemTime;

use super::{Level, checks::Doctor};
use crate::inspect::questions as ask;

/// Partitions are made 30 days ahead; with fewer than this, nobody has made any for weeks.
const FEWEST_DAYS_AHEAD: i64 = 7;

/// Locks that an unbounded query takes per partition: the table and its indexes.
const LOCKS_PER_LEAF: i64 = 2;

/// How many such queries at once the lock table should bear.
const QUERIES_AT_ONCE: i64 = 4;

/// A clock that differs by more is worth a word.
const SKEW: f64 = 5.0;

impl Doctor<'_> {
    pub(super) async fn partitions(&mut self) {
        match self.value(ask::LEAVES_AHEAD).await {
            Err(error) => self.unanswered("partitions are there for the days ahead", &error),
            Ok(days) => match days.and_then(|days| days.parse::<i64>().ok()) {
                Some(days) if days >= FEWEST_DAYS_AHEAD => {
                    let text = format!("partitions are there for {days} days ahead");
                    self.report.add(Level::Ok, text);
                }
                Some(days) => self.report.add(
                    Level::Fault,
                    format!("partitions end {days} days from now: are workers running? They make them; or run: select postrider.maintain(true)"),
                ),
                None => self.report.add(
                    Level::Fault,
                    "there are no daily partitions. Run: select postrider.maintain(true)",
                ),
            },
        }
        self.unless(Level::Note, ask::STRAYS, "no row is in a default partition", |rows| {
            format!("{rows} rows are in default partitions: maintain moves them to their day; if they stay, select postrider.maintain() says what it waits for")
        })
        .await;
        let subject = "the lock table is large enough for all partitions";
        let Some(leaves) = self.number(ask::LEAVES, subject).await else {
            return;
        };
        let Some(locks) = self.number(ask::LOCK_TABLE, subject).await else {
            return;
        };
        if leaves * LOCKS_PER_LEAF * QUERIES_AT_ONCE > locks {
            self.report.add(
                Level::Note,
                format!("{leaves} partitions and room for {locks} locks: a few queries over all days at once could fill the lock table; raise max_locks_per_transaction"),
            );
        } else {
            let text = format!("{leaves} partitions, room for {locks} locks");
            self.report.add(Level::Ok, text);
        }
    }

    pub(super) async fn work(&mut self) {
        match self.number(ask::LIVE_WORKERS, "workers beat").await {
            Some(0) => self.unless(
                Level::Fault,
                ask::WORK_WAITS,
                "no work waits; no worker has beaten within a minute",
                |work| format!("no worker has beaten within a minute, and work waits ({work}): start one with `postrider worker`"),
            )
            .await,
            Some(workers) => {
                let text = format!("workers that beat: {workers}");
                self.report.add(Level::Ok, text);
            }
            None => {}
        }
        self.unless(Level::Fault, ask::OUTBOX_AGE, "events are fanned out as they come", |age| {
            format!("the oldest event not fanned out is {age} old: are workers running, and what do they log?")
        })
        .await;
        self.unless(Level::Note, ask::DEFERRED, "no transaction holds up the fan-out of an endpoint", |count| {
            format!("{count} deliveries wait for transactions that hold their endpoint's state: see the open transactions below")
        })
        .await;
        self.unless(Level::Note, ask::OLDEST_DUE, "no delivery has been due for long", |age| {
            format!("a delivery has been due for {age}: endpoints are slower than their events, or workers too few; see postrider.endpoint_health")
        })
        .await;
    }

    pub(super) async fn endpoints(&mut self) {
        self.unless(Level::Note, ask::DISABLED, "no endpoint is disabled", |ids| {
            format!("endpoints are disabled: {ids}. Once mended: select postrider.enable_endpoint(id)")
        })
        .await;
        self.unless(Level::Note, ask::ALERTS, "no alert is open", |count| {
            format!("open alerts: {count}. See: select * from postrider.alerts where dismissed_at is null")
        })
        .await;
        self.unless(Level::Note, ask::LAPSES, "no endpoint is held back after lost leases", |ids| {
            format!("workers vanished again and again while they owned endpoints (lapses): {ids}. Look at why workers die")
        })
        .await;
    }

    pub(super) async fn surroundings(&mut self) {
        self.unless(Level::Note, ask::BLIND, "transactions of others can be seen", |_| {
            "transactions of other roles cannot be seen: grant pg_read_all_stats, or run it as a superuser".into()
        })
        .await;
        self.unless(Level::Note, ask::LONG_TRANSACTIONS, "no transaction is open for long", |found| {
            format!("transactions are open for over ten minutes and keep dead rows of the queue alive: {found}")
        })
        .await;
        self.unless(
            Level::Note,
            ask::PREPARED,
            "no prepared transaction is left over",
            |found| {
                format!(
                    "prepared transactions are left over: {found}. Commit them or roll them back"
                )
            },
        )
        .await;
        self.unless(
            Level::Note,
            ask::SLOTS,
            "no replication slot is inactive",
            |found| {
                format!("replication slots are inactive and may keep dead rows and WAL: {found}")
            },
        )
        .await;
        self.unless(Level::Note, ask::SYNCHRONOUS, "commits are durable", |value| {
            format!("synchronous_commit is {value}: a crash may lose the last emits; what was sent is always durable first")
        })
        .await;
        self.clock().await;
    }

    async fn clock(&mut self) {
        let clock = match self.value(ask::CLOCK).await {
            Ok(clock) => clock.and_then(|t| t.parse::<f64>().ok()),
            Err(error) => return self.unanswered("the clocks agree", &error),
        };
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let (Some(there), Ok(here)) = (clock, here) else {
            return;
        };
        let ahead = there - here.as_secs_f64();
        if ahead.abs() > SKEW {
            let side = if ahead > 0.0 { "ahead of" } else { "behind" };
            self.report.add(
                Level::Note,
                format!("the database's clock is {:.0} s {side} this machine's; Postrider goes by the database's, receivers compare signatures with their own", ahead.abs()),
            );
        } else {
            self.report.add(Level::Ok, "the clocks agree");
        }
    }
}
