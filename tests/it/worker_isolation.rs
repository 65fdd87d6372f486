//! A slow, silent or flooded endpoint costs the others nothing.

use std::time::{Duration, Instant};

use crate::fixtures::arrivals::median;
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

/// With a paused and a saturated backlog in front of it, an idle endpoint is served as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlogs_delay_nobody_else() {
    let mut world = World::alone(|_, _| Reply::status(200).after(ms(5))).await;
    let paused = world.endpoint("/paused", "event_types => '{paused}'").await;
    world
        .run(&format!("select postrider.pause_endpoint({paused})"))
        .await;
    let settings = "event_types => '{saturated}', rate => 50, burst => 1";
    world.endpoint("/saturated", settings).await;
    world.endpoint("/in", "event_types => '{a}'").await;
    world.emit_many("paused", 20_000).await;
    world.emit_many("saturated", 5000).await;
    world.worker();
    let all_out = "select not exists (select from postrider.outbox)";
    crate::fixtures::eventually(LIMIT, async || {
        world.one::<bool>(all_out, &[]).await.then_some(())
    })
    .await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let before = Instant::now();
        let event = world.emit("a").await;
        let request = world.arrival("/in", event).await;
        took.push(request.arrived.duration_since(before));
        tokio::time::sleep(ms(50)).await;
    }
    took.sort();
    println!(
        "beside backlogs: median {:?}, worst {:?}",
        median(took.clone()),
        took[19]
    );
    assert!(took[18] < ms(500), "{took:?}");
    assert!(world.receiver.requests_to("/paused").is_empty());
}

/// Fifty slow requests are open, and three connections to the database are enough: none is held meanwhile.
#[tokio::test]
async fn no_connection_is_held_during_a_request() {
    let mut world = World::new(|request, _| match request.path.as_str() {
        "/fast" => Reply::status(200),
        _ => Reply::status(200).after(ms(2000)),
    })
    .await;
    for n in 0..50 {
        let settings = "event_types => '{slow}', concurrency => 1";
        world.endpoint(&format!("/slow{n}"), settings).await;
    }
    world.endpoint("/fast", "event_types => '{fast}'").await;
    world.worker_with(|o| o.pool_size = 3);
    world.emit_many("slow", 2).await;
    world.receiver.wait_for(LIMIT, |all| all.len() >= 50).await;
    let watched = async {
        let sql = "select count(*) from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()
                      and state like 'idle in transaction%' and clock_timestamp() - state_change > interval '1 s'";
        while world.receiver.requests().len() < 105 {
            assert_eq!(world.one::<i64>(sql, &[]).await, 0);
            tokio::time::sleep(ms(20)).await;
        }
    };
    let served = async {
        for _ in 0..5 {
            let before = Instant::now();
            let event = world.emit("fast").await;
            let request = world.arrival("/fast", event).await;
            let took = request.arrived.duration_since(before);
            assert!(took < ms(1000), "{took:?}");
            tokio::time::sleep(ms(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(watched, served) })
        .await
        .expect("not all were sent");
    world.settled().await;
}
