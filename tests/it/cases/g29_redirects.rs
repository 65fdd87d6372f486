//! G29: a redirect that is followed. A sender that follows loses the body, counts the page it lands on as
//! delivered, or carries payload and signature to an inner address.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Receiver;
use crate::fixtures::world::World;

#[tokio::test]
async fn g29_a_redirect_is_a_named_failure_and_never_followed() {
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

/// A policy that retries everything asks the same endpoint again, and nobody else.
#[tokio::test]
async fn g29_a_policy_that_retries_redirects_does_not_follow_them_either() {
    let second = Receiver::ok().await;
    let target = second.url("/elsewhere");
    let mut world = World::new(move |request, _| {
        Reply::status(request.path[1..].parse().unwrap()).header("Location", &target)
    })
    .await;
    let all = r#"{"retry_statuses": "{[300,400)}", "max_attempts": 3}"#;
    world.quick_policy("all", all).await;
    let mut endpoints = Vec::new();
    for status in [301, 302, 303, 307, 308] {
        let path = format!("/{status}");
        endpoints.push((path.clone(), world.endpoint(&path, "policy => 'all'").await));
    }
    world.worker();
    let event = world.emit("a").await;
    for (path, endpoint) in endpoints {
        let ended = world.wait_for_status(event, endpoint, "exhausted").await;
        assert_eq!(ended.attempts, 3, "{path}");
        assert!(ended.last_error.unwrap().contains("/elsewhere"), "{path}");
        for request in world.receiver.requests_to(&path) {
            assert_eq!((request.method.as_str(), request.body.len()), ("POST", 7));
        }
    }
    assert_eq!(second.connections(), 0);
}
