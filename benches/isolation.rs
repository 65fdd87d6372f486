//! The specification's own numbers: what a slow endpoint with a long queue costs twenty fast ones.

use std::time::{Duration, Instant};

use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, load, scale};

const SLOW: Duration = Duration::from_millis(900);
const FAST: Duration = Duration::from_millis(15);
const SLOW_EVENTS: u32 = 4000;
const FAST_EVENTS: u32 = 200;
const FAST_ENDPOINTS: u32 = 20;
const CONCURRENCY: u32 = 5;
/// Alternating, so that whatever else the machine does falls on both.
const ROUNDS: usize = 3;
const LONGEST: Duration = Duration::from_secs(60);

pub async fn run(report: &mut Report) -> Result<()> {
    let (slow, fast) = (scale::count(SLOW_EVENTS), scale::count(FAST_EVENTS));
    report.note(format_args!(
        "one endpoint that takes {SLOW:?} with {slow} events, {FAST_ENDPOINTS} that take {FAST:?} with {fast} each, \
         {CONCURRENCY} requests open at most, no pace; one transaction emits all; best of {ROUNDS}"
    ));
    let (mut alone, mut beside) = (Duration::MAX, Duration::MAX);
    let mut most = 0;
    for _ in 0..ROUNDS {
        alone = alone.min(round(0, fast).await?.0);
        let (took, open) = round(slow, fast).await?;
        beside = beside.min(took);
        most = most.max(open);
    }
    report.shown("fast ones alone", alone.as_secs_f64(), "s");
    report.shown("fast ones beside the slow one", beside.as_secs_f64(), "s");
    report.at_most(
        "… of the time alone",
        beside.as_secs_f64() / alone.as_secs_f64(),
        1.2,
        "×",
    );
    report.at_most(
        "most requests open at the slow one",
        most.into(),
        CONCURRENCY.into(),
        "",
    );
    Ok(())
}

/// How long until the last fast one has arrived, and the most requests that the slow one had open.
async fn round(slow: u32, fast: u32) -> Result<(Duration, u32)> {
    let cluster = Cluster::start().await?;
    // Endpoint 0 is the slow one.
    let receiver = Receiver::remembering(|n| if n == 0 { SLOW } else { FAST })?;
    let settings = format!(
        "policy => 'unlimited', rate => 100000, burst => 1000, concurrency => {CONCURRENCY}"
    );
    cluster
        .endpoints(&receiver.base(), "bench", FAST_ENDPOINTS + 1, &settings)
        .await?;
    let worker = Worker::start(&cluster, &[]).await?;
    let emit = "select count(postrider.emit_event('bench.' || case when n <= $1::int then 0 else 1 + n % $2::int end, $3::text))
                  from generate_series(1, $4::int) n";
    let all = fast * FAST_ENDPOINTS;
    let (slow, fast_endpoints) = (i32::try_from(slow)?, i32::try_from(FAST_ENDPOINTS)?);
    let events = slow + i32::try_from(all)?;
    let emit = cluster.sql.prepare(emit).await?;
    cluster
        .sql
        .execute(&emit, &[&slow, &fast_endpoints, &load::body(1024), &events])
        .await?;
    let start = Instant::now();
    let last = loop {
        let arrived = receiver.arrivals();
        let fast = arrived.iter().filter(|a| a.endpoint > 0);
        if fast.clone().count() >= all as usize {
            break fast.map(|a| a.at).max();
        }
        if start.elapsed() > LONGEST {
            return Err(format!("fast endpoints were not done within {LONGEST:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let took = last.ok_or("nothing was emitted")? - start;
    // It had the whole time to show more.
    let most = receiver.most_open(0);
    drop(worker);
    Ok((took, most))
}
