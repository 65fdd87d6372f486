//! Whether more workers on the same two cores cost anything, and share the work.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::stats::rate;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, load, scale};

const EVENTS: u32 = 60_000;
const ENDPOINTS: u32 = 1000;
const ROUNDS: u32 = 2;
const LONGEST: Duration = Duration::from_secs(120);

/// What one round showed.
struct Round {
    rate: f64,
    /// Attempts of the worker with the fewest, as a share of what is fair.
    least: f64,
    duplicates: usize,
}

pub async fn run(report: &mut Report) -> Result<()> {
    let events = scale::count(EVENTS);
    let fleets = [1, 2, 4];
    report.note(format_args!(
        "{events} events of 1 kB to {ENDPOINTS} endpoints, emitted beforehand; best of {ROUNDS}"
    ));
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        for workers in fleets {
            rounds.push((workers, round(workers, events).await?));
        }
    }
    let best = |workers| {
        let of = rounds.iter().filter(|r| r.0 == workers);
        of.map(|r| r.1.rate).fold(0.0, f64::max)
    };
    let top = fleets.map(best).into_iter().fold(0.0, f64::max);
    for workers in fleets {
        let total = best(workers);
        report.shown(format_args!("deliveries, {workers} workers"), total, "/s");
        report.at_least(
            format_args!("… of the best, {workers} workers"),
            100.0 * total / top,
            90.0,
            "%",
        );
    }
    for workers in [2, 4] {
        let of = rounds.iter().filter(|r| r.0 == workers);
        let least = of.map(|r| r.1.least).fold(f64::INFINITY, f64::min);
        report.at_least(
            format_args!("least busy of {workers} workers, of its fair share of attempts"),
            100.0 * least,
            50.0,
            "%",
        );
    }
    let duplicates: usize = rounds.iter().map(|r| r.1.duplicates).sum();
    report.at_most("duplicates", duplicates as f64, 0.0, "");
    Ok(())
}

async fn round(workers: usize, events: u32) -> Result<Round> {
    let cluster = Cluster::start().await?;
    let receiver = Receiver::remembering(|_| Duration::ZERO)?;
    cluster
        .unlimited_endpoints(&receiver.base(), ENDPOINTS)
        .await?;
    load::emit_beforehand(&cluster, "bench", ENDPOINTS.try_into()?, events).await?;
    cluster.settle_down().await?;
    let start = Instant::now();
    let mut running = Vec::new();
    for _ in 0..workers {
        running.push(Worker::spawn(&cluster, &[])?);
    }
    receiver.reached(events.into(), LONGEST).await?;
    cluster.nothing_owed(LONGEST).await?;
    let took = start.elapsed();
    let fewest = format!(
        "select case when count(*) < {workers} then 0 else min(attempts) end
           from (select count(*) as attempts from postrider.attempts group by worker) w"
    );
    let fewest: i64 = cluster.one(&fewest).await?;
    let arrivals = receiver.take();
    let distinct: HashSet<_> = arrivals.iter().map(|a| (a.endpoint, a.event)).collect();
    for worker in running {
        worker.stop().await?;
    }
    Ok(Round {
        rate: rate(events.into(), took),
        least: fewest as f64 * workers as f64 / f64::from(events),
        duplicates: arrivals.len() - distinct.len(),
    })
}
