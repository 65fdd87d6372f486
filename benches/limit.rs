//! What this machine can do without Postrider. The rest is judged against it.

use std::time::{Duration, Instant};

use crate::shared::cluster::Cluster;
use crate::shared::receiver::{self, Receiver};
use crate::shared::stats::{rate, us_each};
use crate::shared::table::Report;
use crate::shared::{Result, cpu, load, sender};

const CONNECTIONS: usize = 32;
const EACH: Duration = Duration::from_secs(4);

/// One row of 1 kB, committed.
const INSERT: &[&str] = &["insert into plain (body) values ($1)"];
const INSERT_NOTIFY: &[&str] = &["insert into plain (body) values ($1)", "notify bench"];

/// Signed requests of 1 kB per second from a bare hyper client to the lean receiver.
pub async fn client_rate(time: Duration) -> Result<f64> {
    let receiver = Receiver::counting()?;
    let sent = sender::flood(receiver.address(), CONNECTIONS, time).await?;
    Ok(rate(sent, time))
}

pub async fn run(report: &mut Report) -> Result<()> {
    http(report).await?;
    let cluster = Cluster::start().await?;
    cluster
        .run("create table plain (id bigint generated always as identity primary key, body text)")
        .await?;
    let (listener, _heard) = cluster.database().connect_listening().await?;
    listener.batch_execute("listen bench").await?;
    for sessions in [1, 8, 32] {
        for (with, statements) in [("", INSERT), (" with NOTIFY", INSERT_NOTIFY)] {
            let (done, took) = load::sessions(&cluster, sessions, EACH, statements).await?;
            let what = format!("insert and commit{with}, {sessions} sessions");
            report.shown(what, rate(done, took), "/s");
        }
    }
    batch(report, &cluster).await
}

async fn http(report: &mut Report) -> Result<()> {
    let receiver = Receiver::counting()?;
    report.note(format_args!(
        "hyper to hyper, {CONNECTIONS} kept-alive connections, 1 kB, signed, {EACH:?}"
    ));
    let before = (
        cpu::of_process(std::process::id()),
        cpu::of_threads(receiver::THREAD),
    );
    let sent = sender::flood(receiver.address(), CONNECTIONS, EACH).await?;
    let all = cpu::of_process(std::process::id()) - before.0;
    let receiving = cpu::of_threads(receiver::THREAD) - before.1;
    report.shown("requests", rate(sent, EACH), "/s");
    report.shown(
        "CPU of the client per request",
        us_each(all - receiving, sent),
        "µs",
    );
    report.shown(
        "CPU of the receiver per request",
        us_each(receiving, sent),
        "µs",
    );
    Ok(())
}

/// Narrow rows in and out, 1,000 in a transaction: what a queue in Postgres cannot go below.
async fn batch(report: &mut Report, cluster: &Cluster) -> Result<()> {
    cluster.run("create table narrow (id bigint generated always as identity primary key, at timestamptz)").await?;
    let insert = "insert into narrow (at) select now() from generate_series(1, 1000)";
    let insert = cluster.sql.prepare(insert).await?;
    let delete = "delete from narrow where id in (select id from narrow order by id limit 1000)";
    let delete = cluster.sql.prepare(delete).await?;
    let start = Instant::now();
    let mut rows = 0;
    while start.elapsed() < EACH {
        rows += cluster.sql.execute(&insert, &[]).await?;
        cluster.sql.execute(&delete, &[]).await?;
    }
    report.shown(
        "rows inserted and deleted, 1,000 a transaction",
        rate(rows, start.elapsed()),
        "/s",
    );
    Ok(())
}
