//! The most memory a worker takes, with very many endpoints and with large bodies.

use std::time::{Duration, Instant};

use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, load, scale};

const ENDPOINTS: u32 = 10_000;
const OPEN: u32 = 500;
const SLOW: Duration = Duration::from_secs(2);
const TIME: Duration = Duration::from_secs(20);
const BAR_MB: f64 = 150.0;
const LARGE_BODY: usize = 256 * 1024;

pub async fn run(report: &mut Report) -> Result<()> {
    let endpoints = scale::count(ENDPOINTS);
    report.note(format_args!(
        "answers after {SLOW:?}; 10 events of 1 kB to each of {endpoints} endpoints, then 2,000 of {} kB over 100",
        LARGE_BODY / 1024
    ));
    let many = round(endpoints, endpoints * 10, 1024).await?;
    report.at_least(
        "most requests open, many endpoints",
        many.open.into(),
        OPEN.into(),
        "",
    );
    report.at_most("peak memory, many endpoints", many.peak_mb, BAR_MB, "MB");

    let large = round(100, scale::count(2000), LARGE_BODY).await?;
    report.shown("most requests open, large bodies", large.open.into(), "");
    report.at_most("peak memory, large bodies", large.peak_mb, BAR_MB, "MB");
    Ok(())
}

struct Seen {
    open: u32,
    peak_mb: f64,
}

async fn round(endpoints: u32, events: u32, bytes: usize) -> Result<Seen> {
    let cluster = Cluster::start().await?;
    let receiver = Receiver::remembering(|_| SLOW)?;
    cluster
        .unlimited_endpoints(&receiver.base(), endpoints)
        .await?;
    load::emit_sized(&cluster, "bench", endpoints.try_into()?, events, bytes).await?;
    let worker = Worker::start(&cluster, &[]).await?;
    let start = Instant::now();
    let mut open = 0;
    while start.elapsed() < scale::time(TIME).max(SLOW * 3) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        open = open.max(receiver.open());
    }
    Ok(Seen {
        open,
        peak_mb: worker.peak_memory() as f64 / 1e6,
    })
}
