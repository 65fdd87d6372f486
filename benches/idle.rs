//! From the call of COMMIT to the arrival when nothing else is going on, against a listener that posts at once.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use uuid::Uuid;

use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::sender::Sender;
use crate::shared::stats::Sorted;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, cpu, load, scale};

const EVERY: Duration = Duration::from_millis(50);
const EVENTS: u32 = 200;
/// Connections, caches and plans are warm after these.
const WARM_UP: u32 = 10;
/// Three polls and six heartbeats of a worker that nothing wakes.
const QUIET: Duration = Duration::from_secs(15);

pub async fn run(report: &mut Report) -> Result<()> {
    let events = scale::count(EVENTS);
    report.note(format_args!(
        "{events} events of 1 kB each, one every {EVERY:?}, from the call of COMMIT to the arrival"
    ));
    let cluster = Cluster::start().await?;
    let receiver = Receiver::remembering(|_| Duration::ZERO)?;
    cluster
        .endpoint(
            &format!("{}/0", receiver.base()),
            "event_types => '{bench.0}', policy => 'unlimited'",
        )
        .await?;
    let bare = bare(&cluster, &receiver, events).await?;
    report.shown("bare path: NOTIFY, listener, POST; p50", bare.ms(0.5), "ms");
    report.shown("bare path, p99", bare.ms(0.99), "ms");

    let worker = Worker::start(&cluster, &[]).await?;
    let one = emitting(&cluster, &receiver, events).await?;
    judge(report, "one worker", &one, &bare);

    let other = cluster.connect().await?;
    other
        .batch_execute("begin; select postrider.emit_event('bench.other', '{}')")
        .await?;
    let held = emitting(&cluster, &receiver, events).await?;
    other.batch_execute("rollback").await?;
    judge(report, "another emitting transaction open", &held, &bare);

    let second = Worker::start(&cluster, &[]).await?;
    let two = emitting(&cluster, &receiver, events).await?;
    judge(report, "two workers", &two, &bare);
    second.stop().await?;
    quiet(report, &cluster, &worker).await?;
    worker.stop().await
}

fn judge(report: &mut Report, who: &str, seen: &Sorted, bare: &Sorted) {
    report.at_most(format_args!("{who}, p50"), seen.ms(0.5), 3.0, "ms");
    report.at_most(
        format_args!("{who}, p50 of the bare path's"),
        seen.ms(0.5) / bare.ms(0.5),
        2.5,
        "×",
    );
    report.at_most(format_args!("{who}, p99"), seen.ms(0.99), 10.0, "ms");
}

/// What any outbox that wakes by NOTIFY has to pay.
async fn bare(cluster: &Cluster, receiver: &Receiver, events: u32) -> Result<Sorted> {
    cluster
        .run("create table plain (id bigint generated always as identity primary key, body text)")
        .await?;
    let (listener, mut heard) = cluster.database().connect_listening().await?;
    listener.batch_execute("listen bench").await?;
    let mut sender = Sender::connect(receiver.address()).await?;
    let body = load::body(1024);
    let posted = Bytes::from(body.clone());
    let posting = tokio::spawn(async move {
        while heard.recv().await.is_some() {
            if sender.send(&posted).await.is_err() {
                break;
            }
        }
    });
    receiver.take();
    let insert = cluster
        .sql
        .prepare("insert into plain (body) values ($1)")
        .await?;
    let mut committed = Vec::new();
    let mut tick = tokio::time::interval(EVERY);
    for _ in 0..WARM_UP + events {
        tick.tick().await;
        cluster.run("begin").await?;
        cluster.sql.execute(&insert, &[&body]).await?;
        cluster.run("notify bench").await?;
        committed.push(Instant::now());
        cluster.run("commit").await?;
    }
    let arrivals = arrivals(receiver, committed.len()).await?;
    posting.abort();
    let took = arrivals.iter().zip(committed).map(|(a, c)| a.1 - c);
    Ok(took.skip(WARM_UP as usize).collect::<Vec<_>>().into())
}

async fn emitting(cluster: &Cluster, receiver: &Receiver, events: u32) -> Result<Sorted> {
    let emit = cluster
        .sql
        .prepare("select postrider.emit_event('bench.0', $1::text)")
        .await?;
    let body = load::body(1024);
    receiver.take();
    let mut committed = HashMap::new();
    let mut tick = tokio::time::interval(EVERY);
    for n in 0..WARM_UP + events {
        tick.tick().await;
        cluster.run("begin").await?;
        let event: Uuid = cluster.sql.query_one(&emit, &[&body]).await?.try_get(0)?;
        let at = Instant::now();
        cluster.run("commit").await?;
        if n >= WARM_UP {
            committed.insert(event, at);
        }
    }
    let arrivals = arrivals(receiver, (WARM_UP + events) as usize).await?;
    let took = arrivals
        .iter()
        .filter_map(|(event, at)| Some(*at - *committed.get(event)?));
    Ok(took.collect::<Vec<_>>().into())
}

async fn arrivals(receiver: &Receiver, count: usize) -> Result<Vec<(Uuid, Instant)>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let all = receiver.arrivals();
        if all.len() >= count {
            return Ok(all.iter().map(|a| (a.event, a.at)).collect());
        }
        if Instant::now() > deadline {
            return Err(format!("{} of {count} arrived", all.len()).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a worker costs that has nothing to do.
async fn quiet(report: &mut Report, cluster: &Cluster, worker: &Worker) -> Result<()> {
    cluster.nothing_owed(Duration::from_secs(10)).await?;
    let time = scale::time(QUIET);
    // Beats have a connection of their own and are no such calls.
    let beats = "select coalesce(sum(beat), 0)::bigint from postrider.workers";
    let (before, used) = (worker.calls(&[]).await?.0, worker.cpu());
    let beaten: i64 = cluster.one(beats).await?;
    tokio::time::sleep(time).await;
    let used = cpu::share(worker.cpu() - used, time);
    let beaten = cluster.one::<i64>(beats).await? - beaten;
    let done = worker.calls(&[]).await?.0 - before + beaten as f64;
    report.at_most("an idle worker's CPU", used, 1.0, "%");
    report.at_most(
        "an idle worker's transactions",
        done / time.as_secs_f64(),
        2.0,
        "/s",
    );
    Ok(())
}
