//! A call is carried out, and its answer is lost with the connection: the worker cannot know which.

use std::time::Duration;

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::proxy::Proxy;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Neither a poll nor the end of the lease comes to help.
const NEVER: Duration = Duration::from_secs(600);

async fn lost(proxy: &Proxy) {
    eventually(LIMIT, async || (proxy.lost() > 0).then_some(())).await;
}

/// The endpoint is owned, and its owner does not know: it asks.
#[tokio::test]
async fn a_claim_whose_answer_was_lost_is_asked_for() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    let event = world.emit("a").await;
    // Fanned out already, so that the first claim takes the endpoint.
    world
        .run("select postrider.fan_out(gen_random_uuid())")
        .await;
    let proxy = world.proxy().await;
    proxy.lose_answer_to("postrider.claim_endpoints(");
    world.worker_by(&proxy, |o| (o.poll_interval, o.lease) = (NEVER, NEVER));
    lost(&proxy).await;
    // Looks for work become ever rarer; the next emit brings the next one.
    let later = world.emit("a").await;
    world.arrival("/in", event).await;
    world.arrival("/in", later).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests_to("/in"), 2);
    let lapses = "select max(lapses) from postrider.endpoint_state";
    assert_eq!(world.one::<i32>(lapses, &[]).await, 0);
}

/// The endpoint is free, and who gave it up must not give up what it claimed anew.
#[tokio::test]
async fn a_release_whose_answer_was_lost_gives_up_nothing_new() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(150))).await;
    world.endpoint("/in", "concurrency => 1").await;
    let proxy = world.proxy().await;
    world.worker_by(&proxy, |_| {});
    let first = world.emit("a").await;
    world.arrival("/in", first).await;
    proxy.lose_answer_to("postrider.release_endpoints(");
    lost(&proxy).await;
    world.worker();
    world.emit_many("a", 10).await;
    world.settled().await;
    let requests = world.receiver.requests_to("/in");
    assert_once_each(&requests, 11);
    assert_one_flight(&requests);
}
