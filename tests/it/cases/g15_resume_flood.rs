//! G15: a resumed or re-enabled endpoint gets its backlog at its pace, oldest first, and every delivery of the
//! time it was stopped is accounted for.

use std::time::Instant;

use uuid::Uuid;

use crate::fixtures::arrivals::{assert_once_each, assert_pace};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Up to five are on the way at once, so neighbours may change places.
fn assert_oldest_first(requests: &[Recorded], emitted: &[Uuid]) {
    for (place, request) in requests.iter().enumerate() {
        let due = emitted.iter().position(|e| e.to_string() == request.id());
        let due = due.expect("nobody emitted it");
        assert!(
            due.abs_diff(place) <= 10,
            "number {due} came as number {place}"
        );
    }
}

/// How many deliveries of these events to the endpoint have this status.
async fn with_status(world: &World, endpoint: i64, events: &[Uuid], status: &str) -> i64 {
    let sql = "select count(*) from postrider.deliveries
               where endpoint_id = $1 and event_id = any ($2) and status = $3 and (status in ('pending', 'delivered') or reason is not null)";
    world.one(sql, &[&endpoint, &events, &status]).await
}

async fn until_fanned_out(world: &World) {
    let sql = "select not exists (select from postrider.outbox)";
    eventually(LIMIT, async || {
        world.one::<bool>(sql, &[]).await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn g15_a_pause_that_expires_lets_the_backlog_out_at_the_pace() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "rate => 50, burst => 10").await;
    world.worker();
    let pause =
        format!("select postrider.pause_endpoint({endpoint}, clock_timestamp() + interval '2 s')");
    let before = Instant::now();
    let paused = world.run(&pause).await;
    let emitted = world.emit_many("a", 100).await;
    let requests = world.arrived("/in", 100).await;
    let back = requests[0].arrived;
    assert!(back >= before + ms(2000), "{:?}", back - before);
    assert!(back < paused + ms(3200), "{:?}", back - paused);
    assert_pace(&requests, 50.0, 10);
    assert_oldest_first(&requests, &emitted);
    assert_once_each(&requests, 100);
}

/// The first attempts fail, and all retries come due while the endpoint is paused; a person resumes it.
#[tokio::test]
async fn g15_retries_that_came_due_during_a_pause_do_not_fire_together() {
    let mut world =
        World::new(|_, nth| Reply::status(if nth.of_id == 1 { 500 } else { 200 })).await;
    world
        .quick_policy(
            "later",
            r#"{"backoff_base": "1500 ms", "backoff_cap": "1500 ms"}"#,
        )
        .await;
    let settings = "policy => 'later', rate => 40, burst => 40";
    let endpoint = world.endpoint("/in", settings).await;
    world.worker();
    let emitted = world.emit_many("a", 40).await;
    world.arrived("/in", 40).await;
    world
        .run(&format!(
            "select postrider.pause_endpoint({endpoint}); select postrider.update_endpoint({endpoint}, rate => 40, burst => 4)"
        ))
        .await;
    let all_due = "select count(*) = 40 and bool_and(due_at <= postrider.now() and failures = 1) from postrider.pending";
    eventually(LIMIT, async || {
        world.one::<bool>(all_due, &[]).await.then_some(())
    })
    .await;
    assert_eq!(world.receiver.requests_to("/in").len(), 40, "it was paused");
    world
        .run(&format!("select postrider.resume_endpoint({endpoint})"))
        .await;
    world.settled().await;
    let requests = world.receiver.requests_to("/in");
    assert_eq!(requests.len(), 80);
    assert_pace(&requests[40..], 40.0, 4);
    assert_eq!(
        with_status(&world, endpoint, &emitted, "delivered").await,
        40
    );
}

/// Whatever a policy does with events of a disabled time, each has a state that is seen and can still be sent.
#[tokio::test]
async fn g15_what_was_emitted_while_disabled_is_held_or_skipped_and_replayable() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world
        .quick_policy("skipping", r#"{"when_disabled": "skip"}"#)
        .await;
    let waits = world.endpoint("/waits", "rate => 50, burst => 10").await;
    let skips = world
        .endpoint("/skips", "rate => 50, burst => 10, policy => 'skipping'")
        .await;
    world.worker();
    let both = |verb: &str| format!("select postrider.{verb}({waits}), postrider.{verb}({skips})");
    world.run(&both("disable_endpoint")).await;
    let emitted = world.emit_many("a", 100).await;
    until_fanned_out(&world).await;
    assert_eq!(with_status(&world, waits, &emitted, "pending").await, 100);
    assert_eq!(with_status(&world, skips, &emitted, "skipped").await, 100);
    assert!(world.receiver.requests().is_empty());

    world.run(&both("enable_endpoint")).await;
    let held = world.arrived("/waits", 100).await;
    assert_pace(&held, 50.0, 10);
    assert_oldest_first(&held, &emitted);
    assert!(world.receiver.requests_to("/skips").is_empty());

    let replay = format!(
        "select postrider.replay_delivery(event_id, endpoint_id) from postrider.deliveries
          where endpoint_id = {skips} and status = 'skipped' order by event_id"
    );
    world.run(&replay).await;
    world.settled().await;
    assert_pace(&world.receiver.requests_to("/skips"), 50.0, 10);
    for endpoint in [waits, skips] {
        assert_eq!(
            with_status(&world, endpoint, &emitted, "delivered").await,
            100
        );
    }
    assert_once_each(&world.receiver.requests(), 200);
}

/// What outlived its time in the queue is not sent, and says so; the rest is.
#[tokio::test]
async fn g15_deliveries_past_their_time_to_live_end_as_expired() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world
        .quick_policy("short", r#"{"time_to_live": "1 second"}"#)
        .await;
    world
        .quick_policy("long", r#"{"time_to_live": "1 hour"}"#)
        .await;
    let short = world.endpoint("/short", "policy => 'short'").await;
    let long = world.endpoint("/long", "policy => 'long'").await;
    world.worker();
    let both = |verb: &str| format!("select postrider.{verb}({short}), postrider.{verb}({long})");
    world.run(&both("pause_endpoint")).await;
    let emitted = world.emit_many("a", 20).await;
    until_fanned_out(&world).await;
    tokio::time::sleep(ms(1100)).await;
    world.run(&both("resume_endpoint")).await;
    // By the worker that meets them, before `maintain` comes round.
    eventually(LIMIT, async || {
        (with_status(&world, short, &emitted, "expired").await == 20).then_some(())
    })
    .await;
    world.settled().await;
    assert_eq!(with_status(&world, long, &emitted, "delivered").await, 20);
    assert!(world.receiver.requests_to("/short").is_empty());
    assert_once_each(&world.receiver.requests(), 20);
}
