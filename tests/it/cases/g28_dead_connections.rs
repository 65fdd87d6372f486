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
