//! Waking: NOTIFY is a hint, and nothing depends on it.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

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

/// What becomes free while a claim is under way is not in its answer.
#[tokio::test]
async fn a_hint_during_a_claim_leads_to_another() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "event_types => '{a}'").await;
    world
        .run(&format!("select postrider.pause_endpoint({endpoint})"))
        .await;
    let event = world.emit("a").await;
    let proxy = world.proxy().await;
    world.worker_by(&proxy, |o| {
        (o.poll_interval, o.lease) = (ms(600_000), ms(600_000));
    });
    let taken = "select not exists (select from postrider.outbox)";
    let looked = async || {
        eventually(LIMIT, async || {
            world.one::<bool>(taken, &[]).await.then_some(())
        })
        .await;
    };
    looked().await;
    proxy.keep_answer_to("postrider.claim_endpoints(");
    world.run("notify postrider, ''").await;
    eventually(LIMIT, async || (proxy.kept() == 1).then_some(())).await;
    world
        .run(&format!("select postrider.resume_endpoint({endpoint})"))
        .await;
    // Of no endpoint's, and its hint comes after the other: once it is taken, both have come.
    world.emit("b").await;
    looked().await;
    proxy.let_go();
    world.arrival("/in", event).await;
}
