//! Waking: NOTIFY is a hint, and nothing depends on it.

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
async fn without_notifications_everything_arrives() {
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
async fn a_killed_listener_loses_no_event() {
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

#[tokio::test]
async fn a_large_transaction_wakes_and_arrives_whole() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    // More events than one step of fan_out makes deliveries, and no poll to help.
    for path in ["/a", "/b"] {
        world.endpoint(path, "concurrency => 50").await;
    }
    world.worker_with(|o| o.poll_interval = ms(60_000));
    world.worker_with(|o| o.poll_interval = ms(60_000));
    let first = world.emit("a").await;
    world.arrival("/a", first).await;
    world.emit_many("a", 1500).await;
    world.receiver.wait_for_count(3002, LIMIT).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 3002);
}

/// A worker with nothing to do asks once per poll interval, and not in bursts.
#[tokio::test]
async fn an_idle_worker_looks_once_per_poll_interval() {
    let mut world = World::alone(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    world.worker_with(|options| options.poll_interval = ms(500));
    let event = world.emit("a").await;
    world.arrival("/in", event).await;
    world.settled().await;
    // Until the endpoint is given up and the looks have grown apart, and then six intervals.
    tokio::time::sleep(ms(5000)).await;
    let commits = "select xact_commit from pg_stat_database where datname = current_database()";
    let before: i64 = world.one(commits, &[]).await;
    tokio::time::sleep(ms(3000)).await;
    let after: i64 = world.one(commits, &[]).await;
    // A fan_out and a claim an interval, a heartbeat now and then, and the two questions here.
    assert!(after - before <= 2 * 6 + 6, "{}", after - before);
}
