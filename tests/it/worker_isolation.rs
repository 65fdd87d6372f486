//! A slow, silent or flooded endpoint costs the others nothing.

use std::time::{Duration, Instant};

use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Emits 25 events to each of twenty endpoints and returns how long until the last has arrived.
async fn fast_run(world: &World, round: usize) -> Duration {
    let before = Instant::now();
    world.emit_many("fast", 25).await;
    let fast = |all: &[crate::fixtures::receiver::Recorded]| {
        all.iter().filter(|r| r.path.starts_with("/fast")).count() >= 500 * round
    };
    world.receiver.wait_for(LIMIT, fast).await;
    before.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_endpoint_delays_no_fast_one() {
    let mut world = World::alone(|request, _| match request.path.as_str() {
        "/slow" => Reply::status(200).after(ms(900)),
        _ => Reply::status(200).after(ms(15)),
    })
    .await;
    world
        .endpoint("/slow", "event_types => '{slow}', concurrency => 5")
        .await;
    for n in 0..20 {
        let settings = "event_types => '{fast}', rate => 20, burst => 5, concurrency => 5";
        world.endpoint(&format!("/fast{n}"), settings).await;
    }
    world.worker_with(|o| o.max_in_flight = 50);
    let alone = fast_run(&world, 1).await;
    // The buckets are full again.
    tokio::time::sleep(ms(300)).await;
    world.emit_many("slow", 100).await;
    world.arrived("/slow", 5).await;
    let beside = fast_run(&world, 2).await;
    assert_eq!(world.receiver.open("/slow"), 5, "it is slow all along");
    println!("twenty fast endpoints: {alone:?} alone, {beside:?} beside a slow one");
    assert!(
        beside < alone.mul_f64(1.3) + ms(300),
        "{alone:?}, then {beside:?}"
    );
    assert_eq!(world.receiver.max_open("/slow"), 5);
}
