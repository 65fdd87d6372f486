//! report: a 429 stops the whole endpoint, and is no failure.

use std::time::{Duration, Instant};

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight, between};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// The way of an answer to the sender, and of what it was sending just then to us.
const ON_THE_WAY: Duration = ms(100);

/// Nothing was begun while the pause held, and then not much later.
fn assert_paused(requests: &[Recorded], from: Instant, until: Instant) {
    let during = between(requests, from + ON_THE_WAY, until - ms(2));
    assert_eq!(during, 0, "requests during the pause");
    let soon = between(requests, until, until + ms(1000));
    assert!(soon > 0, "nothing within a second after the pause");
}

fn answered(requests: &[Recorded], nth: usize) -> (Instant, Option<u16>) {
    (requests[nth].finished.unwrap(), requests[nth].status)
}

/// The specification's own scenario: 500, then 429 with Retry-After, then 200.
#[tokio::test]
async fn a_failure_then_a_pause_of_the_whole_endpoint_then_delivered() {
    let mut world = World::new(|request, nth| match (request.path.as_str(), nth.of_path) {
        ("/in", 1) => Reply::status(500),
        ("/in", 2) => Reply::status(429).header("Retry-After", 2),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "").await;
    world.endpoint("/other", "event_types => '{more}'").await;
    world.worker();
    world.worker();
    let event = world.emit("first").await;
    let limited = |all: &[Recorded]| all.iter().any(|r| r.status == Some(429));
    world.receiver.wait_for(LIMIT, limited).await;
    let emitted = Instant::now();
    let more = world.emit_many("more", 10).await;
    // The others do not notice.
    world.arrived("/other", 10).await;
    assert!(emitted.elapsed() < ms(1500), "{:?}", emitted.elapsed());
    let state: String = eventually(LIMIT, async || {
        let sql = "select state from postrider.endpoint_health where endpoint_id = $1";
        let state = world.one::<String>(sql, &[&endpoint]).await;
        (state != "active").then_some(state)
    })
    .await;
    assert_eq!(state, "rate_limited");

    let requests = world.arrived("/in", 13).await;
    world.settled().await;
    let of_first: Vec<_> = requests
        .iter()
        .filter(|r| r.id() == event.to_string())
        .collect();
    let statuses: Vec<_> = of_first.iter().map(|r| r.status).collect();
    assert_eq!(statuses[..2], [Some(500), Some(429)]);
    assert_eq!(of_first.len(), 3);
    let attempts: Vec<_> = of_first.iter().map(|r| r.the("Webhook-Attempt")).collect();
    assert_eq!(attempts, ["1", "2", "3"]);
    let at = answered(&requests, 1).0;
    assert_paused(&requests, at, at + ms(2000));
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!((done.attempts, done.failures), (3, 1));
    let rest: Vec<_> = requests[2..].to_vec();
    assert_once_each(&rest, 1 + more.len());
    assert_one_flight(&requests);
}

#[tokio::test]
async fn g13_one_of_five_open_requests_stops_all_that_follow() {
    let mut world = World::new(|_, nth| match nth.of_path {
        1 => Reply::status(429).header("Retry-After", 2).after(ms(50)),
        2..=5 => Reply::status(200).after(ms(300)),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "concurrency => 5").await;
    world.worker();
    world.worker();
    let events = world.emit_many("a", 40).await;
    let requests = world.arrived("/in", 41).await;
    world.settled().await;
    let (at, status) = answered(&requests, 0);
    assert_eq!(status, Some(429));
    assert_eq!(between(&requests, requests[0].arrived, at), 5);
    assert_paused(&requests, at, at + ms(2000));
    for event in events {
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        let attempts = if event.to_string() == requests[0].id() {
            2
        } else {
            1
        };
        assert_eq!((done.attempts, done.failures), (attempts, 0));
    }
}

/// Several 429 at once: the longest pause wins. And however many follow, none uses up a retry or counts on
/// the ladder, though here a single failure would end a delivery and pause the endpoint.
#[tokio::test]
async fn g13_pauses_are_never_shortened_and_use_nothing_up() {
    let waits = [Some(1), Some(3), Some(2), None, Some(1)];
    let mut world = World::new(move |_, nth| {
        let reply = Reply::status(429).after(ms(100 + 50 * nth.of_path as u64));
        match nth.of_path {
            n @ 1..=5 => match waits[n - 1] {
                Some(wait) => reply.header("Retry-After", wait),
                None => reply,
            },
            6..=20 => Reply::status(429).header("Retry-After", 0),
            _ => Reply::status(200),
        }
    })
    .await;
    world
        .quick_policy("touchy", r#"{"max_attempts": 1, "pause_default": "2 s"}"#)
        .await;
    world
        .run("insert into postrider.policy_rungs values ('touchy', 1, 1, '0', '1 h')")
        .await;
    let endpoint = world
        .endpoint("/in", "policy => 'touchy', concurrency => 5")
        .await;
    world.worker();
    world.worker();
    let events = world.emit_many("a", 40).await;
    let requests = world.arrived("/in", 60).await;
    world.settled().await;
    let (second, _) = answered(&requests, 1);
    assert_eq!(between(&requests, requests[0].arrived, second), 5);
    assert_paused(&requests, requests[4].arrived, second + ms(3000));
    // 0 is the floor of a second, never a tight loop.
    let limited: Vec<_> = requests.iter().filter(|r| r.status == Some(429)).collect();
    assert_eq!(limited.len(), 20);
    for pair in limited[5..].windows(2) {
        let gap = pair[1].arrived.duration_since(pair[0].arrived);
        assert!(gap < ms(400) || gap > ms(950), "{gap:?}");
    }
    for event in events {
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        assert_eq!(done.failures, 0);
    }
    let sql = "select failures + rung from postrider.endpoint_state where endpoint_id = $1";
    assert_eq!(world.one::<i32>(sql, &[&endpoint]).await, 0);
    let alerts: i64 = world
        .one("select count(*) from postrider.alerts", &[])
        .await;
    assert_eq!(alerts, 0);
    assert_one_flight(&requests);
}

#[tokio::test]
async fn retry_after_on_a_503_pauses_and_counts_as_a_failure() {
    let mut world = World::new(|_, nth| match nth.of_path {
        1 => Reply::status(503).header("Retry-After", 2),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "concurrency => 1").await;
    world.worker();
    let events = world.emit_many("a", 5).await;
    world.arrived("/in", 1).await;
    let sql = "select failures from postrider.endpoint_state where endpoint_id = $1";
    eventually(LIMIT, async || {
        (world.one::<i32>(sql, &[&endpoint]).await == 1).then_some(())
    })
    .await;
    // Every worker knows.
    let paused = "select coalesce(rate_limited_until > clock_timestamp(), false)
                    from postrider.endpoint_state where endpoint_id = $1";
    assert!(world.one::<bool>(paused, &[&endpoint]).await);
    let requests = world.arrived("/in", 6).await;
    let at = answered(&requests, 0).0;
    assert_paused(&requests, at, at + ms(2000));
    let done = world
        .wait_for_status(events[0], endpoint, "delivered")
        .await;
    assert_eq!((done.attempts, done.failures), (2, 1));
    world.settled().await;
    assert_eq!(world.one::<i32>(sql, &[&endpoint]).await, 0);
}
