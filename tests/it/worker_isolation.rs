//! A slow, silent or flooded endpoint costs the others nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::TcpListener;

use crate::fixtures::eventually;
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

/// Accepts connections, reads nothing from them and counts them.
async fn deaf() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, accepted)
}

/// Bodies are held within a bound of bytes. What others hold of it leaves an endpoint less room, but no pauses.
#[tokio::test]
async fn large_bodies_that_are_not_read_do_not_halt_a_backlog() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let (url, accepted) = deaf().await;
    for n in 0..20 {
        let endpoint = format!(
            "select postrider.create_endpoint('{url}/{n}', event_types => '{{large}}', concurrency => 1, policy => 'patient')"
        );
        world.run(&endpoint).await;
    }
    let settings = "event_types => '{small}', concurrency => 5, rate => 1000, burst => 100";
    world.endpoint("/fast", settings).await;
    // A socket's buffers do not take so much, and all of a body is held until the last of it is written.
    world
        .run("select postrider.emit_event('large', to_json(repeat('x', 4000000)))")
        .await;
    world.worker();
    eventually(LIMIT, async || {
        (accepted.load(Ordering::SeqCst) == 20).then_some(())
    })
    .await;
    world.emit_many("small", 300).await;
    let before = Instant::now();
    world.arrived("/fast", 300).await;
    let took = before.elapsed();
    println!("300 events beside them: {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");
}
