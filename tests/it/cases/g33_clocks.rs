//! G33: the clock of a worker's machine is wrong, or the database's is set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::process::Process;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::skew::skewed;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Ten minutes.
const SKEW: i64 = 600;

/// A worker on a machine whose clock is so many seconds ahead.
fn worker(world: &World, seconds: i64, more: &[&str]) -> Process {
    let env = skewed(seconds);
    let env: Vec<_> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
    world.process_under(&env, &[&["--lease", "3s"], more].concat())
}

/// How many seconds the signed time is off ours, to which the database's is set so far ahead.
fn off(request: &Recorded, ahead: f64) -> f64 {
    let signed: f64 = request.the("Webhook-Timestamp").parse().unwrap();
    let arrived = request.arrived_at.duration_since(UNIX_EPOCH).unwrap();
    // Whole seconds, cut.
    signed + 0.5 - (arrived.as_secs_f64() + ahead)
}

fn assert_signed_in_time(requests: &[Recorded], ahead: f64) {
    for request in requests {
        let off = off(request, ahead);
        assert!(off.abs() <= 2.0, "{}: {off} s off", request.path);
    }
}

/// Signed with the database's time; no retry and no end of a pause comes early or ten minutes late, and the
/// HTTP date in an answer is read by the database's clock as well.
async fn one_worker(seconds: i64) {
    let world = World::new(|request, nth| match (request.path.as_str(), nth.of_path) {
        ("/date", 1) => {
            let date = SystemTime::now() + Duration::from_secs(3);
            Reply::status(429).header("Retry-After", httpdate::fmt_http_date(date))
        }
        ("/seconds", 1) => Reply::status(429).header("Retry-After", 2),
        ("/retry", 1) => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    world
        .quick_policy("later", r#"{"backoff_base": "1 s", "backoff_cap": "1 s"}"#)
        .await;
    for path in ["/date", "/seconds", "/retry"] {
        world.endpoint(path, "policy => 'later'").await;
    }
    let _worker = worker(&world, seconds, &[]);
    world.emit("a").await;
    // A date has whole seconds, and the database's time is known as well as its answers are quick.
    for (path, wait) in [("/date", 1000), ("/seconds", 2000), ("/retry", 1000)] {
        let requests = world.arrived(path, 2).await;
        let gap = requests[1]
            .arrived
            .duration_since(requests[0].finished.unwrap());
        assert!(gap > ms(wait - 50), "{path}: early, after {gap:?}");
        assert!(gap < ms(15_000), "{path}: late, after {gap:?}");
    }
    world.settled().await;
    assert_signed_in_time(&world.receiver.requests(), 0.0);
    assert_eq!(world.receiver.requests().len(), 6);
}

#[tokio::test]
async fn g33_a_fast_worker_keeps_to_the_databases_time() {
    one_worker(SKEW).await;
}

#[tokio::test]
async fn g33_a_slow_worker_keeps_to_the_databases_time() {
    one_worker(-SKEW).await;
}

/// The program does see another time, or these tests show nothing.
#[tokio::test]
async fn g33_doctor_tells_that_the_clocks_disagree() {
    let world = World::new(|_, _| Reply::status(200)).await;
    for (seconds, said) in [
        (SKEW, "s behind this machine's"),
        (-SKEW, "s ahead of this machine's"),
    ] {
        let env = skewed(seconds);
        let mut env: Vec<_> = env.iter().map(|(k, v)| (*k, v.as_str())).collect();
        env.push(("DATABASE_URL", world.url()));
        let (_, output) = Process::run(&["doctor"], &env).await;
        assert!(output.contains(said), "{output}");
    }
}

/// Three workers whose clocks are twenty minutes apart share slow endpoints: no lease is taken for over that is
/// not, nothing is sent twice, nothing stands still.
#[tokio::test]
async fn g33_workers_of_different_clocks_share_the_work() {
    let world = World::new(|_, _| Reply::status(200).after(ms(1000))).await;
    for n in 0..6 {
        world.endpoint(&format!("/{n}"), "concurrency => 1").await;
    }
    let slots = ["--max-in-flight", "2"];
    let workers = [SKEW, -SKEW, 0].map(|seconds| worker(&world, seconds, &slots));
    eventually(LIMIT, async || {
        let sql = "select count(*) from postrider.workers";
        (world.one::<i64>(sql, &[]).await == 3).then_some(())
    })
    .await;
    world.emit_many("a", 4).await;
    world.settled().await;
    let requests = world.receiver.requests();
    assert_once_each(&requests, 24);
    assert_one_flight(&requests);
    assert_signed_in_time(&requests, 0.0);
    let senders = "select count(distinct worker) from postrider.attempts";
    assert_eq!(world.one::<i64>(senders, &[]).await, 3);
    let lapses = "select max(lapses) from postrider.endpoint_state";
    assert_eq!(world.one::<i32>(lapses, &[]).await, 0);
    drop(workers);
}

/// The database's clock is what counts, also when it is wrong, and when somebody sets it.
#[tokio::test]
async fn g33_the_signed_time_follows_the_databases_clock() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.set_clock_offset(3600.0).await;
    world.endpoint("/in", "").await;
    world.worker_with(|o| o.lease = ms(3000));
    let event = world.emit("a").await;
    assert_signed_in_time(&[world.arrival("/in", event).await], 3600.0);
    for ahead in [5400.0, 1800.0] {
        world.set_clock_offset(ahead).await;
        // A beat is half a second here.
        let follows = async || {
            let event = world.emit("a").await;
            let request = world
                .receiver
                .wait_for(LIMIT, |all| all.iter().any(|r| r.id() == event.to_string()));
            let request = request
                .await
                .into_iter()
                .find(|r| r.id() == event.to_string());
            (off(&request.unwrap(), ahead).abs() <= 2.0).then_some(())
        };
        eventually(ms(10_000), follows).await;
    }
}
