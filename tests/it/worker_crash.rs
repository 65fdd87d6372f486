//! The lease: workers that are stopped in good order, or frozen.

use std::time::Instant;

use nix::sys::signal::Signal;
use uuid::Uuid;

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const LEASE: &[&str] = &["--lease", "10s"];

async fn workers(world: &World) -> Vec<Uuid> {
    let sql = "select coalesce(array_agg(id order by registered_at), '{}') from postrider.workers";
    world.one(sql, &[]).await
}

#[tokio::test]
async fn a_worker_told_to_stop_finishes_reports_and_hands_over() {
    let mut world = World::new(|_, nth| match nth.of_path {
        1 => Reply::status(200).after(ms(2000)),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "concurrency => 1").await;
    let mut first = world.process(&[]);
    let events = world.emit_many("a", 5).await;
    world.arrived("/in", 1).await;
    let old = workers(&world).await;
    world.worker();
    eventually(LIMIT, async || {
        (workers(&world).await.len() == 2).then_some(())
    })
    .await;
    first.signal(Signal::SIGTERM);
    let status = first.wait(LIMIT).await;
    assert_eq!(status.code(), Some(0), "{}", first.output());
    // It ended its request, and reported it, before it left.
    let requests = world.receiver.requests();
    let finished = requests[0].finished.expect("it left its request");
    assert_eq!(requests[0].status, Some(200));
    let sent: Uuid = requests[0].id().parse().unwrap();
    let sql = "select worker from postrider.attempts where event_id = $1";
    assert_eq!(world.one::<Uuid>(sql, &[&sent]).await, old[0]);
    assert!(!workers(&world).await.contains(&old[0]), "it deregistered");
    let requests = world.arrived("/in", 5).await;
    let handed_over = requests[1].arrived.duration_since(finished);
    assert!(handed_over < ms(1000), "{handed_over:?}");
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 5);
    for event in events {
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        assert_eq!(done.attempts, 1);
    }
    let by_first = "select count(*) from postrider.attempts where worker = $1";
    assert_eq!(world.one::<i64>(by_first, &[&old[0]]).await, 1);
}

#[tokio::test]
async fn a_frozen_worker_that_wakes_starts_nothing_and_counts_nothing() {
    let world = World::new(|_, nth| match nth.of_path {
        // Of the one that will be frozen; it fails while nobody is there to read that.
        1 => Reply::status(500).after(ms(2000)),
        _ => Reply::status(200).after(ms(400)),
    })
    .await;
    let endpoint = world.endpoint("/in", "concurrency => 1").await;
    let frozen = world.process(LEASE);
    world.emit_many("a", 10).await;
    // It has the first in flight and the others in memory.
    let first = world.arrived("/in", 1).await.remove(0);
    let old = workers(&world).await;
    frozen.signal(Signal::SIGSTOP);
    let _other = world.process(LEASE);
    // The other has taken over, and is at work when the frozen one wakes.
    let taken = world.arrived("/in", 3).await;
    assert!(taken[1].arrived > first.finished.unwrap_or(first.arrived));
    frozen.signal(Signal::SIGCONT);
    let woken = Instant::now();
    world.settled().await;
    assert!(woken.elapsed() > ms(1000), "it was at work still");
    // It found its lease gone and registered anew.
    eventually(LIMIT, async || {
        let now = workers(&world).await;
        (now.len() == 2 && !now.contains(&old[0])).then_some(())
    })
    .await;
    let requests = world.receiver.requests();
    let again = requests.iter().filter(|r| r.id() == first.id()).count();
    assert_eq!(again, 2, "once by each");
    let others: Vec<_> = requests
        .iter()
        .filter(|r| r.id() != first.id())
        .cloned()
        .collect();
    assert_once_each(&others, 9);
    for pair in requests[1..].windows(2) {
        let over = pair[0].finished.unwrap();
        assert!(over <= pair[1].arrived, "concurrency is 1");
    }
    // Its late 500 counts for nothing.
    let event: Uuid = first.id().parse().unwrap();
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!(done.failures, 0);
    let sql = "select failures from postrider.endpoint_state where endpoint_id = $1";
    assert_eq!(world.one::<i32>(sql, &[&endpoint]).await, 0);
    let late = "select count(*) from postrider.attempts where worker = $1 and not stale";
    assert_eq!(world.one::<i64>(late, &[&old[0]]).await, 0);
    // Both work on.
    let next = world.emit("a").await;
    world.wait_for_status(next, endpoint, "delivered").await;
}
