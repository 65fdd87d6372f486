//! replay, test events, events for one endpoint.

use uuid::Uuid;

use crate::fixtures::http::Reply;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

#[tokio::test]
async fn a_replay_is_the_same_event_in_a_new_run() {
    let mut world = World::new(|request, nth| {
        let rejected = request.path == "/rejects" && nth.of_path == 1;
        Reply::status(if rejected { 422 } else { 200 })
    })
    .await;
    let mut endpoints = Vec::new();
    for (path, status) in [("/accepts", "delivered"), ("/rejects", "rejected")] {
        endpoints.push((path, status, world.endpoint(path, "").await));
    }
    world.worker();
    let event = world.emit("a").await;
    for (path, status, endpoint) in endpoints {
        world.wait_for_status(event, endpoint, status).await;
        let replay = "select postrider.replay_delivery($1, $2)";
        world
            .sql
            .execute(replay, &[&event, &endpoint])
            .await
            .unwrap();
        let requests = world.arrived(path, 2).await;
        let again = &requests[1];
        assert_eq!(again.id(), event.to_string());
        assert_eq!(again.the("Webhook-Attempt"), "1");
        assert_eq!(again.body, requests[0].body);
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        if done.run == 1 {
            // The view may have been read between the request and its report.
            let run_2 = |d: &crate::fixtures::world::Delivery| d.run == 2;
            crate::fixtures::eventually(LIMIT, async || {
                world.delivery(event, endpoint).await.filter(run_2)
            })
            .await;
        }
        world.settled().await;
        let runs = "select array_agg(status order by run) from postrider.finished where event_id = $1 and endpoint_id = $2";
        let runs: Vec<String> = world.one(runs, &[&event, &endpoint]).await;
        assert_eq!(runs, [status, "delivered"]);
        let numbers = "select array_agg(array[run, number] order by run) = array[[1, 1], [2, 1]]
                         from postrider.attempts where event_id = $1 and endpoint_id = $2";
        assert!(world.one::<bool>(numbers, &[&event, &endpoint]).await);
    }
    assert_eq!(world.receiver.requests().len(), 4);
}

#[tokio::test]
async fn a_test_event_goes_to_its_endpoint_alone() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world
        .endpoint("/in", "event_types => '{invoice.paid}'")
        .await;
    world.endpoint("/all", "").await;
    world.worker();
    let test: Uuid = world
        .one("select postrider.send_test_event($1)", &[&endpoint])
        .await;
    let request = world.arrival("/in", test).await;
    assert_eq!(request.the("Webhook-Event-Type"), "postrider.test");
    assert_eq!(request.body, b"{}");
    // To one endpoint, whatever it subscribes to.
    let sql = "select postrider.emit_event('some.thing', '[1]'::text, endpoint_id => $1)";
    let direct: Uuid = world.one(sql, &[&endpoint]).await;
    world.arrival("/in", direct).await;
    // Subscriptions: a pattern, and nothing else.
    let unmatched = world.emit("invoice.sent").await;
    world.arrival("/all", unmatched).await;
    let matched = world.emit("invoice.paid").await;
    world.arrival("/in", matched).await;
    world.arrival("/all", matched).await;
    world.settled().await;
    let ids = |path| -> Vec<String> {
        let requests = world.receiver.requests_to(path);
        requests.iter().map(|r| r.id()).collect()
    };
    let wanted = |events: &[Uuid]| -> Vec<String> { events.iter().map(Uuid::to_string).collect() };
    assert_eq!(ids("/in"), wanted(&[test, direct, matched]));
    assert_eq!(ids("/all"), wanted(&[unmatched, matched]));
}
