//! Whether an endpoint's pace is kept to the request, whoever owns it.

use std::time::{Duration, Instant};

use crate::shared::cluster::Cluster;
use crate::shared::receiver::Receiver;
use crate::shared::table::Report;
use crate::shared::worker::Worker;
use crate::shared::{Result, load, scale};

/// Requests per second and burst, of endpoint 0, 1 and 2.
const PACES: [(u32, u32); 3] = [(5, 10), (50, 50), (500, 100)];
const TIME: Duration = Duration::from_secs(30);
/// What the way to the receiver may move two requests towards each other.
const JITTER: Duration = Duration::from_millis(20);

pub async fn run(report: &mut Report) -> Result<()> {
    let time = scale::time(TIME);
    report.note(format_args!(
        "rate and burst {PACES:?} side by side, never short of events, {time:?} each"
    ));
    for workers in [1, 4, 8] {
        let seen = round(workers, time).await?;
        for ((rate, burst), at) in PACES.into_iter().zip(seen) {
            let paced = after_burst(&at, burst)?;
            report.at_most(
                format_args!("{rate}/s, {workers} workers: off the rate"),
                100.0 * (paced / f64::from(rate) - 1.0).abs(),
                2.0,
                "%",
            );
            report.at_most(
                format_args!("{rate}/s, {workers} workers: fullest window over its bound"),
                excess(&at, rate, burst),
                1.0,
                "",
            );
        }
    }
    Ok(())
}

/// When requests came to each endpoint.
async fn round(workers: usize, time: Duration) -> Result<Vec<Vec<Instant>>> {
    let cluster = Cluster::start().await?;
    let receiver = Receiver::remembering(|_| Duration::ZERO)?;
    for (n, (rate, burst)) in PACES.into_iter().enumerate() {
        let settings = format!(
            "event_types => '{{bench.{n}.*}}', policy => 'unlimited', rate => {rate}, burst => {burst}, concurrency => 100"
        );
        cluster
            .endpoint(&format!("{}/{n}", receiver.base()), &settings)
            .await?;
        let events = f64::from(rate) * (time.as_secs_f64() + 3.0) + f64::from(burst);
        load::emit_beforehand(&cluster, &format!("bench.{n}"), 1, events as u32).await?;
    }
    let mut running = Vec::new();
    for _ in 0..workers {
        running.push(Worker::spawn(&cluster, &[])?);
    }
    receiver.reached(1, Duration::from_secs(20)).await?;
    tokio::time::sleep(time).await;
    let mut at = vec![Vec::new(); PACES.len()];
    for arrival in receiver.take() {
        if let Some(at) = at.get_mut(arrival.endpoint as usize) {
            at.push(arrival.at);
        }
    }
    Ok(at)
}

/// Requests per second once the burst is through.
fn after_burst(at: &[Instant], burst: u32) -> Result<f64> {
    let paced = at.get(burst as usize..).unwrap_or_default();
    let [first, .., last] = paced else {
        return Err(format!("only {} requests came", at.len()).into());
    };
    Ok((paced.len() - 1) as f64 / (*last - *first).as_secs_f64())
}

/// Over all windows: by how much the requests in it are more than burst + rate · (length + jitter).
fn excess(at: &[Instant], rate: u32, burst: u32) -> f64 {
    let Some(&start) = at.first() else { return 0.0 };
    let rate = f64::from(rate);
    let mut fewest = f64::INFINITY;
    let mut most = f64::NEG_INFINITY;
    for (n, at) in at.iter().enumerate() {
        // Requests before this one, less what the pace allows up to it: the window that begins where this was
        // least holds the most too many.
        let ahead = n as f64 - rate * (*at - start).as_secs_f64();
        fewest = fewest.min(ahead);
        most = most.max(ahead + 1.0 - fewest);
    }
    most - f64::from(burst) - rate * JITTER.as_secs_f64()
}
