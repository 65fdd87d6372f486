//! What an application pays for an event, against what two inserts of its own would cost it.

use std::time::{Duration, Instant};

use crate::shared::Result;
use crate::shared::cluster::Cluster;
use crate::shared::load;
use crate::shared::stats::{Sorted, rate};
use crate::shared::table::Report;

const EACH: Duration = Duration::from_secs(3);
/// Both alternate, so that whatever else the machine does falls on both.
const ROUNDS: u32 = 2;
const BULK: i32 = 20_000;

const EMIT: &[&str] = &["select postrider.emit_event('bench.emit', $1::text)"];
const PLAIN: &[&str] = &[
    "insert into plain_events (id, tenant, event_type, body, created_at) values ($1, 'default', 'bench.emit', $2, now())",
    "insert into plain_outbox (event_id) values ($1)",
];
const TABLES: &str = "
    create table plain_events (id uuid primary key, tenant text not null, event_type text not null, body text not null,
                               created_at timestamptz not null);
    create table plain_outbox (event_id uuid primary key);";

pub async fn run(report: &mut Report) -> Result<()> {
    let cluster = Cluster::start().await?;
    cluster.run(TABLES).await?;
    // As with a worker: someone listens. Nobody fans out, so emitting alone is measured.
    let (listener, _heard) = cluster.database().connect_listening().await?;
    listener.batch_execute("listen postrider").await?;
    report.note(format_args!(
        "1 kB, one event a transaction, begin to commit in one round trip, {ROUNDS} × {EACH:?} each; notifications on"
    ));
    for sessions in [1, 8, 32, 64] {
        let (mut plain, mut emit) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            let (done, took) = load::sessions(&cluster, sessions, EACH, PLAIN).await?;
            plain += rate(done, took) / f64::from(ROUNDS);
            let (done, took) = load::sessions(&cluster, sessions, EACH, EMIT).await?;
            emit += rate(done, took) / f64::from(ROUNDS);
        }
        report.shown(
            format_args!("two plain inserts, {sessions} sessions"),
            plain,
            "/s",
        );
        report.shown(format_args!("emit_event, {sessions} sessions"), emit, "/s");
        report.at_least(
            format_args!("… of the plain rate, {sessions} sessions"),
            100.0 * emit / plain,
            80.0,
            "%",
        );
    }
    statement(report, &cluster).await?;
    bulk(report, &cluster).await
}

/// The call alone, within a transaction, as its session sees it.
async fn statement(report: &mut Report, cluster: &Cluster) -> Result<()> {
    let emit = cluster.sql.prepare(EMIT[0]).await?;
    let nothing = cluster.sql.prepare("select $1::text is null").await?;
    let body = load::body(1024);
    let (mut took, mut empty) = (Vec::new(), Vec::new());
    for _ in 0..1000 {
        cluster.run("begin").await?;
        for (statement, into) in [(&nothing, &mut empty), (&emit, &mut took)] {
            let before = Instant::now();
            cluster.sql.execute(statement, &[&body]).await?;
            into.push(before.elapsed());
        }
        cluster.run("commit").await?;
    }
    report.shown(
        "a statement that does nothing, median",
        Sorted::from(empty).ms(0.5),
        "ms",
    );
    report.at_most(
        "emit_event as a statement, median",
        Sorted::from(took).ms(0.5),
        0.2,
        "ms",
    );
    Ok(())
}

async fn bulk(report: &mut Report, cluster: &Cluster) -> Result<()> {
    let body = load::body(1024);
    let plain = "with e as (insert into plain_events (id, tenant, event_type, body, created_at)
                            select gen_random_uuid(), 'default', 'bench.emit', $1::text, now() from generate_series(1, $2::int)
                            returning id)
                 insert into plain_outbox (event_id) select id from e";
    let before = Instant::now();
    cluster.sql.execute(plain, &[&body, &BULK]).await?;
    let plain = rate(BULK.unsigned_abs().into(), before.elapsed());
    let emit = "select count(postrider.emit_event('bench.emit', $1::text)) from generate_series(1, $2::int)";
    let before = Instant::now();
    cluster.sql.execute(emit, &[&body, &BULK]).await?;
    let emit = rate(BULK.unsigned_abs().into(), before.elapsed());
    report.shown("two plain inserts, 20,000 in one statement", plain, "/s");
    report.shown("emit_event, 20,000 in one statement", emit, "/s");
    report.shown("… of the plain rate", 100.0 * emit / plain, "%");
    Ok(())
}
