//! One event to many endpoints: what it costs whoever emits it, and how fast deliveries are made of it.

use std::time::{Duration, Instant};

use postrider::db::Db;
use uuid::Uuid;

use crate::shared::cluster::Cluster;
use crate::shared::stats::{Sorted, rate};
use crate::shared::table::Report;
use crate::shared::{Result, load, scale};

/// Endpoints of an event, how many events, and whether it is set-wise enough to be judged.
const SIZES: [(u32, u32, bool); 3] = [(1, 2000, false), (100, 300, true), (10_000, 6, true)];
const EMITS: u32 = 500;

pub async fn run(report: &mut Report) -> Result<()> {
    let cluster = Cluster::start().await?;
    let db = Db::new(cluster.database().pool(1)?);
    for (endpoints, _, _) in SIZES {
        let sql = format!(
            "select count(c.endpoint_id) from generate_series(1, {endpoints}) n
              cross join lateral postrider.create_endpoint(
                  url => 'http://127.0.0.1/{endpoints}/' || n, event_types => array['bench.to{endpoints}']) c"
        );
        cluster.run(&sql).await?;
    }
    cluster.settle_down().await?;
    report.note(format_args!(
        "1 kB; {EMITS} emits of each kind in turn, a transaction each; then fan_out until nothing is left, nobody claims"
    ));
    emitting(report, &cluster).await?;
    // Fanning these out would take minutes.
    cluster.run("truncate postrider.outbox").await?;
    for (endpoints, events, judged) in SIZES {
        let events = scale::count(events).max(2);
        load::emit_beforehand_to(&cluster, &kind(endpoints), events).await?;
        cluster.run("checkpoint").await?;
        let start = Instant::now();
        let mut made = 0_u64;
        loop {
            let step = db.fan_out(Uuid::nil(), &[], 0).await.0?;
            made += u64::try_from(step.deliveries)?;
            if !step.more {
                break;
            }
        }
        let seen = rate(made, start.elapsed());
        if made != u64::from(events) * u64::from(endpoints) {
            return Err(format!("{made} deliveries of {events} events to {endpoints}").into());
        }
        let what = format!("deliveries made, {events} events to {endpoints} each");
        if judged {
            report.at_least(what, seen, 20_000.0, "/s");
        } else {
            report.shown(what, seen, "/s");
        }
    }
    Ok(())
}

fn kind(endpoints: u32) -> String {
    format!("bench.to{endpoints}")
}

async fn emitting(report: &mut Report, cluster: &Cluster) -> Result<()> {
    let emit = "select postrider.emit_event($1, $2::text)";
    let emit = cluster.sql.prepare(emit).await?;
    let body = load::body(1024);
    let mut took = SIZES.map(|_| Vec::<Duration>::new());
    for _ in 0..scale::count(EMITS) {
        for ((endpoints, _, _), took) in SIZES.into_iter().zip(&mut took) {
            let before = Instant::now();
            cluster
                .sql
                .execute(&emit, &[&kind(endpoints), &body])
                .await?;
            took.push(before.elapsed());
        }
    }
    let medians = took.map(|t| Sorted::from(t).ms(0.5));
    for ((endpoints, _, _), median) in SIZES.into_iter().zip(medians) {
        let what = format!("emit and commit, {endpoints} endpoints, median");
        report.shown(what, median, "ms");
    }
    let slowest = medians.into_iter().fold(0.0, f64::max);
    let fastest = medians.into_iter().fold(f64::INFINITY, f64::min);
    report.at_most("slowest of the fastest", slowest / fastest, 1.2, "×");
    Ok(())
}
