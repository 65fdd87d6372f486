//! ladder: what an endpoint that keeps failing gets, and how it comes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uuid::Uuid;

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const STATE: &str = "select state from postrider.endpoint_health where endpoint_id = $1";

/// A policy with two rungs: an hour after 3 failures, disabled after 8.
async fn with_ladder(world: &World) {
    world
        .quick_policy("ladder", r#"{"max_attempts": 100, "backoff_base": "0 s"}"#)
        .await;
    world
        .run(
            "insert into postrider.policy_rungs values
                 ('ladder', 1, 3, '0', '1 h'), ('ladder', 2, 8, '0', null)",
        )
        .await;
}

/// Lets the ladder's pause end now.
async fn end_pause(world: &World, endpoint: i64) {
    let unowned = "select owner is null from postrider.endpoint_state where endpoint_id = $1";
    eventually(LIMIT, async || {
        world.one::<bool>(unowned, &[&endpoint]).await.then_some(())
    })
    .await;
    world
        .run(&format!(
            "update postrider.endpoint_state
                set ladder_paused_until = clock_timestamp(), next_claim_at = clock_timestamp()
              where endpoint_id = {endpoint};
             select pg_notify('postrider', '')"
        ))
        .await;
}

async fn wait_for_state(world: &World, endpoint: i64, state: &str) {
    eventually(LIMIT, async || {
        let found: String = world.one(STATE, &[&endpoint]).await;
        (found == state).then_some(())
    })
    .await;
}

#[tokio::test]
async fn after_a_pause_one_request_at_a_time_oldest_first_until_one_succeeds() {
    // Fails the first four requests: three before the pause, one after it.
    let mut world = World::new(|_, nth| {
        let status = if nth.of_path <= 4 { 500 } else { 200 };
        Reply::status(status).after(ms(if nth.of_path > 3 { 200 } else { 0 }))
    })
    .await;
    with_ladder(&world).await;
    let endpoint = world
        .endpoint("/in", "policy => 'ladder', concurrency => 5")
        .await;
    world.endpoint("/other", "").await;
    world.worker();
    world.worker();
    let first = world.emit("a").await;
    world.arrived("/in", 3).await;
    wait_for_state(&world, endpoint, "paused").await;
    let due = "select due_at < clock_timestamp() from postrider.pending where event_id = $1 and endpoint_id = $2";
    eventually(LIMIT, async || {
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&first, &endpoint];
        world.one::<bool>(due, &params).await.then_some(())
    })
    .await;
    // One at a time, so that they are due in this order.
    let mut events: Vec<Uuid> = Vec::new();
    for _ in 0..20 {
        events.push(world.emit("a").await);
    }
    world.arrived("/other", 21).await;
    assert_eq!(world.receiver.requests_to("/in").len(), 3);
    let alerts =
        "select count(*) from postrider.alerts where endpoint_id = $1 and kind = 'endpoint_paused'";
    assert_eq!(world.one::<i64>(alerts, &[&endpoint]).await, 1);

    end_pause(&world, endpoint).await;
    world.arrived("/in", 3 + 22).await;
    world.settled().await;
    let requests = world.receiver.requests_to("/in");
    assert_eq!(requests[3].id(), first.to_string(), "the oldest due");
    assert_eq!(requests[4].id(), events[0].to_string());
    for pair in requests[3..6].windows(2) {
        let over = pair[0].finished.unwrap();
        assert!(over <= pair[1].arrived, "one at a time");
    }
    assert_eq!(requests[4].status, Some(200));
    // Then as before.
    assert_eq!(world.receiver.max_open("/in"), 5);
    assert_one_flight(&requests);
    assert_once_each(&requests[4..], 21);
    let left = "select failures + rung from postrider.endpoint_state where endpoint_id = $1";
    assert_eq!(world.one::<i32>(left, &[&endpoint]).await, 0);
    wait_for_state(&world, endpoint, "active").await;
    assert_eq!(world.one::<i64>(alerts, &[&endpoint]).await, 1);
}

/// The count is exact, a rung fires once, and what is disabled stays so until a person enables it.
#[tokio::test]
async fn g14_failures_of_concurrent_requests_climb_one_rung_a_pause() {
    let failing = Arc::new(AtomicUsize::new(500));
    let answers = failing.clone();
    let mut world = World::new(move |_, _| {
        let status = u16::try_from(answers.load(Ordering::Relaxed)).unwrap();
        Reply::status(status).after(ms(30))
    })
    .await;
    with_ladder(&world).await;
    let endpoint = world
        .endpoint("/in", "policy => 'ladder', concurrency => 10")
        .await;
    for _ in 0..3 {
        world.worker();
    }
    let events = world.emit_many("a", 60).await;
    wait_for_state(&world, endpoint, "paused").await;
    let unowned = "select owner is null from postrider.endpoint_state where endpoint_id = $1";
    eventually(LIMIT, async || {
        world.one::<bool>(unowned, &[&endpoint]).await.then_some(())
    })
    .await;
    // Everything that was open is in, counted, and has climbed no further.
    let counted = "select s.failures, s.rung, (select count(*)::int from postrider.attempts a where not a.stale)
                     from postrider.endpoint_state s where s.endpoint_id = $1";
    let row = world.sql.query_one(counted, &[&endpoint]).await.unwrap();
    let (failures, rung, attempts): (i32, i32, i32) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(failures, attempts);
    assert_eq!(
        usize::try_from(attempts).unwrap(),
        world.receiver.requests().len()
    );
    assert_eq!(rung, 1);
    assert!((3..30).contains(&failures), "{failures}");

    // Tried again, it goes on failing, and climbs the other rung.
    end_pause(&world, endpoint).await;
    wait_for_state(&world, endpoint, "disabled").await;
    let alerts = "select array_agg(kind order by id) from postrider.alerts where endpoint_id = $1";
    let alerts: Vec<String> = world.one(alerts, &[&endpoint]).await;
    assert_eq!(alerts, ["endpoint_paused", "endpoint_disabled"]);
    failing.store(200, Ordering::Relaxed);
    let before = world.receiver.requests().len();
    world
        .run(&format!("select postrider.enable_endpoint({endpoint})"))
        .await;
    world.settled().await;
    assert_once_each(&world.receiver.requests()[before..], events.len());
}
