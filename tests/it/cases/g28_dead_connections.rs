//! G28: a connection that the receiver closed while it was idle. A request that meets it fails although the
//! receiver is well; enough of these pause the endpoint.

use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

/// A receiver that closes a kept-alive connection when the next request comes is healthy.
#[tokio::test]
async fn g28_a_dead_kept_alive_connection_is_no_failure() {
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

/// Once a byte of an answer came, the receiver has had the request: that is a failure like any other.
#[tokio::test]
async fn g28_an_answer_that_broke_off_is_a_failure_and_not_repeated_at_once() {
    let mut world = World::new(|_, nth| match nth.of_path {
        2 => Reply::Raw(b"HTTP/1.1 2".to_vec()),
        _ => Reply::status(200),
    })
    .await;
    world
        .quick_policy("slower", r#"{"backoff_base": "300 ms"}"#)
        .await;
    let endpoint = world
        .endpoint("/in", "policy => 'slower', concurrency => 1")
        .await;
    world.worker();
    let first = world.emit("a").await;
    world.wait_for_status(first, endpoint, "delivered").await;
    let second = world.emit("a").await;
    let done = world.wait_for_status(second, endpoint, "delivered").await;
    let requests = world.receiver.requests_to("/in");
    assert_eq!(
        requests[1].nth.of_connection, 2,
        "it was a reused connection"
    );
    assert_eq!((done.attempts, done.failures), (2, 1));
}
