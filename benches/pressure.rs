//! Emitting and delivering at full speed under pressure: an old snapshot that keeps every dead row, readers that
//! scan the engine's tables, and more events than can be delivered.

use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio_postgres::Client;

use crate::shared::cluster::Cluster;
use crate::shared::flow::{Flow, Load};
use crate::shared::receiver::Receiver;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, scale};

const WARM_UP: Duration = Duration::from_secs(5);
const WINDOW: Duration = Duration::from_secs(15);
/// Deliveries that pass while the snapshot is held, and how long that may take.
const BEHIND_SNAPSHOT: u32 = 500_000;
const LONGEST: Duration = Duration::from_secs(150);
const RECOVERY: Duration = Duration::from_secs(45);
const READERS: usize = 4;
const OVERLOAD: Duration = Duration::from_secs(180);
/// Enough that the worker never waits for events.
const UNDELIVERED: u64 = 4000;
/// The tables whose scans dead rows could make longer.
const TABLES: [&str; 5] = [
    "outbox",
    "pending",
    "endpoint_state",
    "endpoint_stats",
    "low_keys",
];
const READ: &str = "begin isolation level repeatable read;
    select count(*), max(attempts) from postrider.pending; select count(*) from postrider.outbox;
    select count(*) from postrider.endpoint_state; select count(*) from postrider.finished where status = 'rejected';
    commit";

struct Bench<'a> {
    cluster: &'a Cluster,
    flow: Flow<'a>,
    worker: &'a Worker,
}

/// What happened from one look to the next.
struct Look {
    calls: f64,
    slow: f64,
    walked: [i64; TABLES.len()],
    delivered: u64,
}

pub async fn run(report: &mut Report) -> Result<()> {
    let cluster = Cluster::start().await?;
    let receiver = Receiver::counting()?;
    let flow = Flow::new(&cluster, &receiver).await?;
    let worker = Worker::start(&cluster, &[]).await?;
    let bench = Bench {
        cluster: &cluster,
        flow,
        worker: &worker,
    };
    report.note(format_args!(
        "1 kB, 20 events a transaction, 4 sessions, 10 endpoints that answer at once, {UNDELIVERED} undelivered; \
         rates over {:?}; scans in index entries read per delivery, dead ones included",
        scale::time(WINDOW)
    ));
    bench.rate(WARM_UP).await?;
    let before = bench.look(&receiver).await?;
    let start = bench.rate(WINDOW).await?;
    report.shown("rate at the start", start, "/s");
    bench
        .judge_calls(report, "at the start", before, &receiver)
        .await?;

    let before = bench.look(&receiver).await?;
    let holder = old_snapshot(&cluster).await?;
    let began = Instant::now();
    let behind = u64::from(scale::count(BEHIND_SNAPSHOT));
    let mut rate = 0.0;
    while receiver.count() - before.delivered < behind && began.elapsed() < LONGEST {
        rate = bench.rate(WINDOW).await?;
    }
    let passed = receiver.count() - before.delivered;
    let what = format!("rate after {passed} deliveries behind an old snapshot");
    report.at_least(what, 100.0 * rate / start, 70.0, "%");
    bench
        .judge_calls(report, "behind it", before, &receiver)
        .await?;
    holder.batch_execute("rollback").await?;
    bench.rate(RECOVERY).await?;
    let rate = bench.rate(WINDOW).await?;
    report.at_least("rate a minute after", 100.0 * rate / start, 90.0, "%");

    let before = bench.look(&receiver).await?;
    let rate = bench.beside_readers().await?;
    let what = format!("rate beside {READERS} repeatable-read readers");
    report.at_least(what, 100.0 * rate / start, 70.0, "%");
    bench
        .judge_calls(report, "beside readers", before, &receiver)
        .await?;

    let before = bench.look(&receiver).await?;
    let over = Load::PerSecond(start * 1.5);
    let seen = bench.flow.run(over, scale::time(OVERLOAD)).await?;
    report.shown(
        "emitted, asked for 1.5 × the start",
        100.0 * seen.emitted() / start,
        "%",
    );
    report.shown(
        "undelivered at its end",
        seen.undelivered.last().copied().unwrap_or_default() as f64,
        "",
    );
    let quarter = (seen.arrived.len() / 4).max(1);
    let last = seen
        .arrived
        .iter()
        .rev()
        .take(quarter)
        .copied()
        .sum::<u64>() as f64;
    let last = last / quarter as f64 / 0.5;
    report.at_least("rate in its last quarter", 100.0 * last / start, 70.0, "%");
    bench
        .judge_calls(report, "overloaded", before, &receiver)
        .await?;
    // What is left would take minutes: the worker is killed.
    Ok(())
}

/// A transaction that does nothing, with a snapshot and an id.
async fn old_snapshot(cluster: &Cluster) -> Result<Client> {
    let holder = cluster.connect().await?;
    holder
        .batch_execute("begin isolation level repeatable read; select pg_current_xact_id()")
        .await?;
    Ok(holder)
}

impl Bench<'_> {
    async fn rate(&self, time: Duration) -> Result<f64> {
        let load = Load::Undelivered(UNDELIVERED);
        Ok(self.flow.run(load, scale::time(time)).await?.delivered())
    }

    async fn beside_readers(&self) -> Result<f64> {
        let readers = try_join_all((0..READERS).map(|_| self.cluster.connect())).await?;
        let reading = try_join_all(readers.iter().map(read_over_and_over));
        tokio::select! {
            rate = self.rate(WINDOW) => rate,
            failed = reading => Err(failed.err().unwrap_or_else(|| "the readers ended".into())),
        }
    }

    async fn look(&self, receiver: &Receiver) -> Result<Look> {
        let (calls, slow) = self.worker.calls(&["claim", "fan_out", "report"]).await?;
        let mut walked = [0; TABLES.len()];
        for (table, walked) in TABLES.into_iter().zip(&mut walked) {
            let sql = format!(
                "select sum(idx_tup_read)::bigint from pg_stat_user_indexes
                  where relid = 'postrider.{table}'::regclass"
            );
            *walked = self.cluster.one(&sql).await?;
        }
        Ok(Look {
            calls,
            slow,
            walked,
            delivered: receiver.count(),
        })
    }

    async fn judge_calls(
        &self,
        report: &mut Report,
        when: &str,
        before: Look,
        receiver: &Receiver,
    ) -> Result<()> {
        let now = self.look(receiver).await?;
        report.holds(
            format_args!("claims, fan-outs, reports over 250 ms, {when}"),
            now.slow <= before.slow,
            format_args!("{} of {}", now.slow - before.slow, now.calls - before.calls),
        );
        let delivered = (now.delivered - before.delivered).max(1) as f64;
        for (i, table) in TABLES.into_iter().enumerate() {
            let walked = (now.walked[i] - before.walked[i]) as f64 / delivered;
            report.shown(format_args!("scan of {table}, {when}"), walked, "");
        }
        Ok(())
    }
}

async fn read_over_and_over(reader: &Client) -> Result<()> {
    loop {
        reader.batch_execute(READ).await?;
    }
}
