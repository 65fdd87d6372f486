//! G13: a 429 hurts only the request that met it, or its pause ends early.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

/// While it lasts, new events come, workers come and go, and people do what they can: nothing leaves.
#[tokio::test]
async fn g13_nothing_ends_a_pause_early() {
    let mut world = World::new(|_, nth| match nth.of_path {
        1 => Reply::status(429).header("Retry-After", 4),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "concurrency => 1").await;
    let first = Worker::start(&world.database, |_| {});
    world.emit_many("a", 10).await;
    let limited = world.arrived("/in", 1).await.remove(0);
    let recorded = "select rate_limited_until > clock_timestamp() from postrider.endpoint_state where endpoint_id = $1";
    eventually(LIMIT, async || {
        let found: Option<bool> = world.one(recorded, &[&endpoint]).await;
        found.filter(|recorded| *recorded)
    })
    .await;
    world.worker();
    world.emit_many("a", 5).await;
    for verb in [
        "pause_endpoint",
        "resume_endpoint",
        "disable_endpoint",
        "enable_endpoint",
    ] {
        world
            .run(&format!("select postrider.{verb}({endpoint})"))
            .await;
    }
    world
        .run(&format!(
            "select postrider.update_endpoint({endpoint}, concurrency => 5);
             select postrider.send_test_event({endpoint})"
        ))
        .await;
    first.stop().await;
    world.emit("a").await;
    let requests = world.arrived("/in", 2).await;
    let pause = requests[1].arrived.duration_since(limited.arrived);
    assert!(pause >= ms(4000), "{pause:?}");
    world.settled().await;
    let requests = world.receiver.requests_to("/in");
    assert_once_each(&requests[1..], 17);
    let used = "select max(failures) from postrider.deliveries";
    assert_eq!(world.one::<i32>(used, &[]).await, 0);
}
