//! claim: several workers share the work, and nothing is done twice.

use std::collections::HashSet;
use std::time::Instant;

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

#[tokio::test]
async fn g10_two_workers_send_each_delivery_once() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(3))).await;
    for n in 0..5 {
        world.endpoint(&format!("/{n}"), "concurrency => 5").await;
    }
    world.worker();
    world.worker();
    for _ in 0..30 {
        world.emit_many("a", 10).await;
    }
    world.settled().await;
    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    assert_once_each(&requests, 1500);
    for n in 0..5 {
        assert!(world.receiver.max_open(&format!("/{n}")) <= 5);
    }
}

/// With retries in between, and workers that come and go.
#[tokio::test]
async fn g10_workers_come_and_go_and_nothing_is_sent_twice() {
    let world = World::new(|_, nth| {
        let status = if nth.of_id == 1 { 500 } else { 200 };
        Reply::status(status).after(ms(300))
    })
    .await;
    // Whoever leaves has requests open, and a successor at work. One endpoint, so that of_id counts the attempts.
    world.endpoint("/in", "concurrency => 20").await;
    let mut owner = Worker::start(&world.database, |_| {});
    world.emit_many("a", 200).await;
    for count in [40, 120, 200, 280] {
        let at_work = |all: &[Recorded]| {
            let open = all.iter().filter(|r| r.finished.is_none()).count();
            all.len() >= count && open == 20
        };
        world.receiver.wait_for(LIMIT, at_work).await;
        let next = Worker::start(&world.database, |_| {});
        owner.stop().await;
        owner = next;
    }
    world.settled().await;
    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    assert_eq!(requests.len(), 400);
    let delivered: Vec<_> = requests
        .into_iter()
        .filter(|r| r.status == Some(200))
        .collect();
    assert_once_each(&delivered, 200);
}

/// Whoever owns all endpoints, all of them busy, gives a newcomer its share.
#[tokio::test]
async fn a_newcomer_gets_its_share_of_busy_endpoints() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(50))).await;
    for n in 0..20 {
        world
            .endpoint(&format!("/{n}"), "rate => 20, burst => 1, concurrency => 2")
            .await;
    }
    world.worker_with(|o| {
        o.name = "first".into();
        o.lease = ms(6000);
    });
    world.emit_many("a", 160).await;
    world.receiver.wait_for_count(40, LIMIT).await;
    let owned = "select count(*) from postrider.endpoint_state s
                   join postrider.workers w on w.id = s.owner where w.name = $1";
    assert_eq!(world.one::<i64>(owned, &[&"first"]).await, 20);
    let joined = Instant::now();
    world.worker_with(|o| {
        o.name = "second".into();
        o.lease = ms(6000);
    });
    let share = eventually(LIMIT, async || {
        let share: i64 = world.one(owned, &[&"second"]).await;
        (share >= 4).then_some(share)
    })
    .await;
    let took = joined.elapsed();
    println!("{share} endpoints after {took:?}");
    // A beat is a second here; the first beat after the newcomer's registration tells of it.
    assert!(took < ms(4000), "{took:?}");
    world.settled().await;
    let by_second = "select count(*) from postrider.attempts a join postrider.workers w on w.id = a.worker where w.name = $1";
    let sent: i64 = world.one(by_second, &[&"second"]).await;
    assert!(sent > 50, "{sent}");
    let requests = world.receiver.requests();
    assert_once_each(&requests, 20 * 160);
    let paths: HashSet<_> = requests.iter().map(|r| r.path.clone()).collect();
    for path in paths {
        assert!(world.receiver.max_open(&path) <= 2);
    }
}

/// As when a former owner's 2xx comes late: what is settled elsewhere is sent no more, however long it lies
/// fetched behind others, and however much comes in meanwhile.
#[tokio::test]
async fn what_was_settled_elsewhere_is_not_sent_from_the_queue() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(3000))).await;
    world.endpoint("/in", "concurrency => 1").await;
    let events = world.emit_many("a", 3).await;
    world.worker();
    world.arrived("/in", 1).await;
    let first = world.receiver.requests()[0].id();
    let settled = events.iter().find(|e| e.to_string() != first).unwrap();
    world
        .run(&format!(
            "delete from postrider.pending where event_id = '{settled}'"
        ))
        .await;
    while world.receiver.requests().len() < 2 {
        world.emit("a").await;
        tokio::time::sleep(ms(100)).await;
    }
    world.arrived("/in", 3).await;
    let requests = world.receiver.requests();
    assert!(requests.iter().all(|r| r.id() != settled.to_string()));
}
