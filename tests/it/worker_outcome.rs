//! settle: what an answer makes of a delivery.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Receiver;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

#[tokio::test]
async fn an_answer_that_will_not_change_is_not_asked_for_again() {
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
async fn statuses_end_or_repeat_a_delivery_as_the_policy_says() {
    let retried = [408, 425, 500, 502, 503, 504, 599];
    let rejected = [300, 304, 400, 401, 403, 404, 405, 409, 413, 421, 451, 499];
    let delivered = [200, 201, 202, 204, 206, 299];
    let mut world = World::new(|request, nth| {
        let status = request.path[1..].parse().unwrap();
        Reply::status(if nth.of_path == 1 { status } else { 200 })
    })
    .await;
    let all: Vec<u16> = [&retried[..], &rejected, &delivered].concat();
    let mut endpoints = Vec::new();
    for status in &all {
        let path = format!("/{status}");
        endpoints.push((*status, world.endpoint(&path, "").await));
    }
    world.worker();
    let event = world.emit("a").await;
    world.settled().await;
    for (status, endpoint) in endpoints {
        let ended = world.delivery(event, endpoint).await.unwrap();
        let wanted = match status {
            _ if rejected.contains(&status) => ("rejected", 1),
            _ if retried.contains(&status) => ("delivered", 2),
            _ => ("delivered", 1),
        };
        assert_eq!((ended.status.as_str(), ended.attempts), wanted, "{status}");
    }
}

#[tokio::test]
async fn no_answer_is_retried_and_retries_end() {
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
async fn gone_disables_until_a_person_enables() {
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

#[tokio::test]
async fn redirects_are_not_followed() {
    let second = Receiver::ok().await;
    let target = second.url("/elsewhere");
    let there = target.clone();
    let mut world = World::new(move |request, _| {
        let (status, location) = request.path[1..].split_once('-').unwrap();
        let reply = Reply::status(status.parse().unwrap());
        match location {
            "none" => reply,
            "second" => reply.header("Location", &there),
            "itself" => reply.header("Location", &request.path),
            "inside" => reply.header("Location", "http://169.254.169.254/latest"),
            other => panic!("{other}"),
        }
    })
    .await;
    let mut endpoints = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        for location in ["none", "second", "itself", "inside"] {
            let path = format!("/{status}-{location}");
            endpoints.push((status, location, world.endpoint(&path, "").await));
        }
    }
    world.worker();
    let event = world.emit("a").await;
    for (status, location, endpoint) in endpoints {
        let ended = world.wait_for_status(event, endpoint, "rejected").await;
        assert_eq!((ended.attempts, ended.last_http_status), (1, Some(status)));
        if location == "second" {
            // A person must be able to see where it would have gone.
            let said = format!("{:?} {:?}", ended.last_error, ended.reason);
            assert!(said.contains(&target), "{said}");
        }
    }
    assert_once_each(&world.receiver.requests(), 20);
    assert_eq!(second.connections(), 0);
}

/// A receiver that closes a kept-alive connection when the next request comes is healthy.
#[tokio::test]
async fn a_dead_kept_alive_connection_is_no_failure() {
    let mut world = World::new(
        |request, nth| match (request.path.as_str(), nth.of_connection) {
            (_, 1) => Reply::status(200),
            ("/fin", _) => Reply::Close,
            _ => Reply::Reset,
        },
    )
    .await;
    let fin = world.endpoint("/fin", "concurrency => 1").await;
    let reset = world.endpoint("/reset", "concurrency => 1").await;
    world.worker();
    for _ in 0..25 {
        let event = world.emit("a").await;
        for endpoint in [fin, reset] {
            let done = world.wait_for_status(event, endpoint, "delivered").await;
            assert_eq!((done.attempts, done.failures), (1, 0));
        }
    }
    let requests = world.receiver.requests();
    for request in requests.iter().filter(|r| r.nth.of_connection > 1) {
        let again = requests
            .iter()
            .find(|r| r.path == request.path && r.id() == request.id() && r.nth.of_connection == 1)
            .expect("it was repeated on a fresh connection");
        let delay = again.arrived.duration_since(request.arrived);
        assert!(delay < ms(1000), "{delay:?}");
        assert_eq!(again.the("Webhook-Attempt"), request.the("Webhook-Attempt"));
    }
    let failed = "select count(*) from postrider.attempts where outcome <> 'delivered'";
    assert_eq!(world.one::<i64>(failed, &[]).await, 0);
}
