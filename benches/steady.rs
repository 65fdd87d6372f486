//! Emitting and delivering at the same time, at half of what both together sustain.

use std::time::Duration;

use crate::shared::cluster::Cluster;
use crate::shared::flow::{Flow, Load};
use crate::shared::receiver::Receiver;
use crate::shared::stats::Sorted;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, scale};

const WARM_UP: Duration = Duration::from_secs(5);
const SUSTAIN: Duration = Duration::from_secs(15);
const TIME: Duration = Duration::from_secs(60);
/// Enough that the worker never waits for events.
const UNDELIVERED: u64 = 4000;

pub async fn run(report: &mut Report) -> Result<()> {
    let cluster = Cluster::start().await?;
    let receiver = Receiver::remembering(|_| Duration::ZERO)?;
    let flow = Flow::new(&cluster, &receiver).await?;
    let worker = Worker::start(&cluster, &[]).await?;
    report.note(format_args!(
        "1 kB, 20 events a transaction, 4 sessions, 10 endpoints that answer at once; with {UNDELIVERED} undelivered \
         for {:?}, then at half of that rate for {:?}",
        scale::time(SUSTAIN),
        scale::time(TIME),
    ));
    let full = Load::Undelivered(UNDELIVERED);
    flow.run(full, scale::time(WARM_UP)).await?;
    let sustained = flow.run(full, scale::time(SUSTAIN)).await?.delivered();
    report.shown("emitted and delivered, sustained", sustained, "/s");
    flow.drained(Duration::from_secs(30)).await?;
    receiver.take();

    let seen = flow
        .run(Load::PerSecond(sustained / 2.0), scale::time(TIME))
        .await?;
    flow.drained(Duration::from_secs(30)).await?;
    let arrivals = receiver.take();
    let took = arrivals
        .iter()
        .filter_map(|a| Some(a.at.saturating_duration_since(*seen.committed.get(&a.event)?)));
    let took = Sorted::from(took.collect::<Vec<_>>());
    report.shown("emitted at half of it", seen.emitted(), "/s");
    report.at_most("commit to arrival, p50", took.ms(0.5), 15.0, "ms");
    report.at_most("commit to arrival, p99", took.ms(0.99), 100.0, "ms");
    report.shown("commit to arrival, p99.9", took.ms(0.999), "ms");
    let (first, last) = seen.drift();
    report.shown("undelivered, first quarter", first, "");
    // Flat, but for what a tenth of a second more or less makes.
    let bar = first * 1.5 + sustained / 20.0;
    report.at_most("undelivered, last quarter", last, bar, "");
    worker.stop().await
}
