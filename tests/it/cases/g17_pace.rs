//! G17: workers together exceed an endpoint's rate, or starve below it.

use std::time::Instant;

use crate::fixtures::arrivals::{assert_once_each, assert_pace};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

/// Whoever looks and finds nothing uses nothing up: after it a whole burst leaves at once.
#[tokio::test]
async fn g17_looking_for_work_in_vain_costs_no_token() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "rate => 0.1, burst => 6").await;
    for _ in 0..4 {
        world.worker_with(|o| o.poll_interval = ms(20));
    }
    let event = world.emit("a").await;
    world.arrival("/in", event).await;
    world.settled().await;
    // The endpoint is owned, looked at by its owner, and looked for by the others.
    tokio::time::sleep(ms(500)).await;
    let emitted = Instant::now();
    world.emit_many("a", 5).await;
    world.arrived("/in", 6).await;
    assert!(emitted.elapsed() < ms(8000), "a token is due every 10 s");
    assert_once_each(&world.receiver.requests(), 6);
}

/// Nobody knows what a killed worker had spent: who takes over has no burst.
#[tokio::test]
async fn g17_a_takeover_from_a_killed_worker_keeps_the_pace() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "rate => 0.5, burst => 5").await;
    let killed = Worker::start(&world.database, |o| o.lease = ms(3000));
    world.emit_many("a", 12).await;
    world.arrived("/in", 5).await;
    // Its answers are stored, so that what comes is another request and not a repetition.
    let stored = "select count(*) from postrider.finished";
    eventually(LIMIT, async || {
        (world.one::<i64>(stored, &[]).await == 5).then_some(())
    })
    .await;
    drop(killed);
    world.worker_with(|o| o.lease = ms(3000));
    let requests = world.arrived("/in", 7).await;
    assert_pace(&requests, 0.5, 5);
    assert_once_each(&requests, 7);
}

/// Endpoints of the same host are paced each by itself.
#[tokio::test]
async fn g17_endpoints_are_paced_apart() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/slow", "rate => 1, burst => 1").await;
    world.endpoint("/fast", "rate => 1000, burst => 50").await;
    world.worker();
    world.worker();
    world.emit_many("a", 40).await;
    world.arrived("/fast", 40).await;
    world.arrived("/slow", 3).await;
    assert_pace(&world.receiver.requests_to("/slow"), 1.0, 1);
}
