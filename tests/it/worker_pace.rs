//! pace: rate, burst and concurrency hold per endpoint over the whole fleet, and are used.

use crate::fixtures::arrivals::{assert_exact_pace, assert_once_each};
use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

async fn sixty_events(workers: usize) {
    let mut world = World::alone(|_, _| Reply::status(200).after(ms(50))).await;
    world
        .endpoint("/in", "rate => 20, burst => 5, concurrency => 3")
        .await;
    for _ in 0..workers {
        world.worker();
    }
    world.emit_many("a", 60).await;
    let requests = world.arrived("/in", 60).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 60);
    assert_exact_pace(&requests, 20.0, 5);
    assert!(world.receiver.max_open("/in") <= 3);
    let took = requests[59].arrived.duration_since(requests[0].arrived);
    let ideal = 55.0 / 20.0;
    let ratio = took.as_secs_f64() / ideal;
    assert!(
        (0.85..1.15).contains(&ratio),
        "{took:?} with {workers} workers"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_one_worker_keeps_and_reaches_the_rate() {
    sixty_events(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_three_workers_keep_and_reach_the_rate() {
    sixty_events(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_eight_workers_keep_and_reach_the_rate() {
    sixty_events(8).await;
}

/// Between two workers the pace is handed over, not begun anew with a full burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g17_the_pace_survives_a_change_of_owner() {
    let mut world = World::alone(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "rate => 5, burst => 5").await;
    world.emit_many("a", 30).await;
    let mut count = 5;
    for _ in 0..4 {
        let worker = crate::fixtures::worker::Worker::start(&world.database, |_| {});
        world.arrived("/in", count).await;
        count += 4;
        worker.stop().await;
    }
    world.worker();
    let requests = world.arrived("/in", 30).await;
    assert_exact_pace(&requests, 5.0, 5);
    assert_once_each(&requests, 30);
}

/// Concurrency is what limits a slow receiver, and it is used to the full.
#[tokio::test]
async fn g17_concurrency_is_kept_and_reached() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(100))).await;
    world.endpoint("/in", "concurrency => 4").await;
    for _ in 0..3 {
        world.worker();
    }
    world.emit_many("a", 60).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 60);
    assert_eq!(world.receiver.max_open("/in"), 4);
}
