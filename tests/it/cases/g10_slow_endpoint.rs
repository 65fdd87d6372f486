//! G10: a request takes longer than the lease, and another worker sends the same delivery meanwhile.

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

/// The heartbeats go wrong while the request is open: answers are lost, connections with them.
#[tokio::test]
async fn g10_a_lease_outlives_heartbeats_whose_answers_are_lost() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(4500))).await;
    let endpoint = world.endpoint("/in", "").await;
    let proxy = world.proxy().await;
    world.worker_by(&proxy, |o| o.lease = ms(3000));
    let event = world.emit("a").await;
    world.arrival("/in", event).await;
    world.worker_with(|o| o.lease = ms(3000));
    for lost in 1..=3 {
        proxy.lose_answer_to("postrider.heartbeat(");
        eventually(LIMIT, async || (proxy.lost() >= lost).then_some(())).await;
    }
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!(done.attempts, 1);
    assert_once_each(&world.receiver.requests(), 1);
}

/// Whoever starts finds requests open that are older than a lease, and lets them be: also where the endpoint
/// has more to do, and where it has failed before.
#[tokio::test]
async fn g10_whoever_starts_lets_open_requests_be() {
    let mut world = World::new(|_, nth| {
        let status = if nth.of_id == 1 { 500 } else { 200 };
        Reply::status(status).after(ms(1500))
    })
    .await;
    world.endpoint("/in", "concurrency => 4").await;
    world.worker_with(|o| o.lease = ms(3000));
    world.emit_many("a", 8).await;
    let mut others = Vec::new();
    for count in [1, 5, 9, 13] {
        world.arrived("/in", count).await;
        others.push(Worker::start(&world.database, |o| o.lease = ms(3000)));
    }
    world.settled().await;
    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    assert_eq!(requests.len(), 16);
    assert!(world.receiver.max_open("/in") <= 4);
    let lapses = "select max(lapses) from postrider.endpoint_state";
    assert_eq!(world.one::<i32>(lapses, &[]).await, 0);
}
