//! G02: a LISTEN connection that was lost takes wake-ups with it, and deliveries wait for an unrelated event.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const LISTENERS: &str = "select coalesce(array_agg(pid), '{}') from pg_stat_activity
    where datname = current_database() and query ilike 'listen%'";

/// Everyone was served within the poll interval of one second and a second more.
fn assert_in_time(world: &World, committed: &HashMap<Uuid, Instant>) {
    for request in world.receiver.requests() {
        let at = committed[&request.id().parse::<Uuid>().unwrap()];
        let took = request.arrived.saturating_duration_since(at);
        assert!(took < ms(2000), "{took:?}");
    }
}

#[tokio::test]
async fn g02_without_notifications_everything_arrives() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world
        .run("update postrider.settings set notify = false")
        .await;
    world.endpoint("/a", "").await;
    world.endpoint("/b", "").await;
    world.worker();
    world.worker();
    let mut committed = HashMap::new();
    // Into the idle fleet, into the poll, and after an endpoint was given up again.
    for pause in [0, 300, 600, 4500] {
        tokio::time::sleep(ms(pause)).await;
        let event = world.emit("a").await;
        committed.insert(event, Instant::now());
    }
    world.receiver.wait_for_count(8, LIMIT).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 8);
    assert_in_time(&world, &committed);
}

#[tokio::test]
async fn g02_a_killed_listener_loses_no_event() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    world.worker();
    let first = world.emit("a").await;
    world.arrival("/in", first).await;
    let mut committed = HashMap::from([(first, Instant::now())]);
    let mut emit = async |world: &World| {
        let event = world.emit("a").await;
        committed.insert(event, Instant::now());
    };
    let old: Vec<i32> = eventually(LIMIT, async || {
        let pids: Vec<i32> = world.one(LISTENERS, &[]).await;
        (!pids.is_empty()).then_some(pids)
    })
    .await;
    let kill = "select bool_and(pg_terminate_backend(pid, 5000)) from unnest($1::int[]) pid";
    assert!(world.one::<bool>(kill, &[&old]).await);
    // At once, while nobody listens, and about the time somebody does again; then silence.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        emit(&world).await;
        tokio::time::sleep(ms(20)).await;
    }
    world.receiver.wait_for_count(committed.len(), LIMIT).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), committed.len());
    assert_in_time(&world, &committed);
    let new: Vec<i32> = world.one(LISTENERS, &[]).await;
    assert_eq!(new.len(), 1, "it listens again");
    assert_ne!(new, old);
}
