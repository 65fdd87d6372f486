//! settle: what an answer makes of a delivery.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Receiver;
use crate::fixtures::world::World;

#[tokio::test]
async fn g34_an_answer_that_will_not_change_is_not_asked_for_again() {
    let mut world =
        World::new(|_, nth| Reply::status(if nth.of_path == 1 { 422 } else { 200 }).body("no"))
            .await;
    let endpoint = world.endpoint("/in", "").await;
    world.worker();
    let event = world.emit("a").await;
    let ended = world.wait_for_status(event, endpoint, "rejected").await;
    assert_eq!((ended.attempts, ended.last_http_status), (1, Some(422)));
    assert!(ended.reason.unwrap().contains("422"));
    // It stops nothing behind it.
    let next = world.emit("a").await;
    world.wait_for_status(next, endpoint, "delivered").await;
    assert_once_each(&world.receiver.requests(), 2);
    let sql = "select answer from postrider.attempts where event_id = $1";
    assert_eq!(world.one::<String>(sql, &[&event]).await, "no");
}

#[tokio::test]
async fn g34_no_answer_is_retried_and_retries_end() {
    let mut world = World::new(|request, _| match request.path.as_str() {
        "/close" => Reply::Close,
        "/reset" => Reply::Reset,
        "/garbage" => Reply::Raw(b"\0\xff no http\r\n\r\n".to_vec()),
        _ => Reply::status(500),
    })
    .await;
    world.quick_policy("three", r#"{"max_attempts": 3}"#).await;
    let mut endpoints = Vec::new();
    for path in ["/close", "/reset", "/garbage", "/500"] {
        endpoints.push((path, world.endpoint(path, "policy => 'three'").await));
    }
    // Nobody listens there.
    let gone = Receiver::ok().await.url("/gone");
    let sql = "select endpoint_id from postrider.create_endpoint(url => $1, policy => 'three')";
    endpoints.push(("/gone", world.one(sql, &[&gone]).await));
    world.worker();
    let event = world.emit("a").await;
    for (path, endpoint) in endpoints {
        let ended = world.wait_for_status(event, endpoint, "exhausted").await;
        assert_eq!((ended.attempts, ended.failures), (3, 3), "{path}");
        assert!(ended.reason.is_some(), "{path}");
        let status = (path == "/500").then_some(500);
        assert_eq!(ended.last_http_status, status, "{path}");
        assert_eq!(
            ended.last_error.is_some(),
            path != "/500",
            "{path}: {:?}",
            ended.last_error
        );
    }
}

#[tokio::test]
async fn g34_gone_disables_until_a_person_enables() {
    let mut world = World::new(|request, nth| match (request.path.as_str(), nth.of_path) {
        ("/in", 1) => Reply::status(410),
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "").await;
    world.endpoint("/other", "").await;
    world.worker();
    let event = world.emit("a").await;
    world.wait_for_status(event, endpoint, "rejected").await;
    let state = "select state from postrider.endpoint_health where endpoint_id = $1";
    assert_eq!(world.one::<String>(state, &[&endpoint]).await, "disabled");
    let alerts = "select count(*) from postrider.alerts
        where endpoint_id = $1 and kind = 'endpoint_disabled' and dismissed_at is null";
    assert_eq!(world.one::<i64>(alerts, &[&endpoint]).await, 1);
    // What waits, waits; those who are well do not.
    let events = world.emit_many("a", 5).await;
    world.arrived("/other", 6).await;
    assert_eq!(world.receiver.requests_to("/in").len(), 1);
    world
        .run(&format!("select postrider.enable_endpoint({endpoint})"))
        .await;
    for event in events {
        world.wait_for_status(event, endpoint, "delivered").await;
    }
    assert_eq!(world.one::<i64>(alerts, &[&endpoint]).await, 0);
}
