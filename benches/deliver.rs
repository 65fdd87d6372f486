//! Everything between an event in the outbox and an attempt in the log, as fast as it goes.

use std::time::{Duration, Instant};

use crate::limit;
use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::stats::{rate, us_each};
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, load, scale};

const EVENTS: u32 = 100_000;
const ENDPOINTS: u32 = 10;
const LONGEST: Duration = Duration::from_secs(120);

pub async fn run(report: &mut Report) -> Result<()> {
    let client = limit::client_rate(scale::time(Duration::from_secs(4))).await?;
    let cluster = Cluster::start().await?;
    let receiver = Receiver::counting()?;
    cluster
        .unlimited_endpoints(&receiver.base(), ENDPOINTS)
        .await?;
    let events = scale::count(EVENTS);
    load::emit_beforehand(&cluster, "bench", ENDPOINTS.try_into()?, events).await?;
    cluster.settle_down().await?;
    report.note(format_args!(
        "{events} events of 1 kB, one endpoint each over {ENDPOINTS} that answer at once, emitted beforehand; \
         one worker, from its start to the last report"
    ));

    let (wal, postgres) = (wal(&cluster).await?, cluster.cpu());
    let start = Instant::now();
    let worker = Worker::spawn(&cluster, &[])?;
    receiver.reached(events.into(), LONGEST).await?;
    cluster.nothing_owed(LONGEST).await?;
    let took = start.elapsed();
    let of_worker = worker.cpu();
    let of_postgres = cluster.cpu() - postgres;
    let wal = self::wal(&cluster).await? - wal;
    worker.stop().await?;

    let delivered = rate(events.into(), took);
    report.shown("bare client, the same minute", client, "/s");
    report.shown("deliveries", delivered, "/s");
    report.at_least(
        "… of the bare client",
        100.0 * delivered / client,
        18.0,
        "%",
    );
    let (worker, postgres) = (
        us_each(of_worker, events.into()),
        us_each(of_postgres, events.into()),
    );
    report.shown("CPU of the worker per delivery", worker, "µs");
    report.shown("CPU of Postgres per delivery", postgres, "µs");
    report.at_most("CPU of both per delivery", worker + postgres, 90.0, "µs");
    report.shown("WAL per delivery", wal as f64 / f64::from(events), "bytes");
    let attempts: i64 = cluster
        .one("select count(*) from postrider.attempts")
        .await?;
    let sent = receiver.count();
    report.holds(
        "each sent once and logged once",
        attempts == i64::from(events) && sent == u64::from(events),
        format_args!("{sent}, {attempts}"),
    );
    Ok(())
}

async fn wal(cluster: &Cluster) -> Result<i64> {
    let sql = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint";
    cluster.one(sql).await
}
