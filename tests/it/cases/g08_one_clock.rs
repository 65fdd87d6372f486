//! G08: a deadline that stops at the head. A receiver that sends a byte a second keeps a slot for hours.

use std::time::Instant;

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

#[tokio::test]
async fn g08_whatever_the_receiver_does_the_request_ends_at_its_limit() {
    let mut world = World::new(|request, nth| match (request.path.as_str(), nth.of_path) {
        (_, 2..) => Reply::status(200),
        ("/silent", _) => Reply::Hang,
        // A head that promises more than ever comes.
        ("/half-500", _) => Reply::status(500)
            .header("Content-Length", 100)
            .body("half"),
        ("/half-200", _) => Reply::status(200)
            .header("Content-Length", 100)
            .body("half"),
        ("/late", _) => Reply::status(200).after(ms(700)),
        ("/too-late", _) => Reply::status(200).after(ms(1500)),
        (other, _) => panic!("{other}"),
    })
    .await;
    let limits = r#"{"connect_timeout": "500 ms", "request_timeout": "1 s"}"#;
    world.quick_policy("limits", limits).await;
    let mut endpoints = Vec::new();
    for (path, attempts, code) in [
        ("/silent", 2, Some("timeout")),
        ("/half-500", 2, None),
        ("/half-200", 1, None),
        ("/late", 1, None),
        ("/too-late", 2, Some("timeout")),
    ] {
        let id = world
            .endpoint(path, "policy => 'limits', concurrency => 1")
            .await;
        endpoints.push((path, attempts, code, id));
    }
    world.worker();
    let event = world.emit("a").await;
    for (path, attempts, code, id) in endpoints {
        let done = world.wait_for_status(event, id, "delivered").await;
        assert_eq!(done.attempts, attempts, "{path}");
        let sql = "select duration_ms, error_code from postrider.attempts
                    where event_id = $1 and endpoint_id = $2 order by number limit 1";
        let row = world.sql.query_one(sql, &[&event, &id]).await.unwrap();
        let (took, found): (i32, Option<String>) = (row.get(0), row.get(1));
        assert!(took < 1500, "{path}: {took} ms");
        if code.is_some() {
            assert!(took >= 990, "{path}: {took} ms");
            assert_eq!(found.as_deref(), code, "{path}");
        }
        let requests = world.receiver.requests_to(path);
        if let [first, second] = &requests[..] {
            // The slot was free at once: after the limit comes the backoff of 50 ms.
            let gap = second.arrived.duration_since(first.arrived);
            assert!(gap < ms(2200), "{path}: {gap:?}");
        }
    }
}

/// 200 requests of 30 ms, two at a time, take three limits: waiting must not count.
#[tokio::test]
async fn g09_waiting_for_a_slot_is_no_timeout() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(30))).await;
    let limits = r#"{"connect_timeout": "500 ms", "request_timeout": "1 s"}"#;
    world.quick_policy("limits", limits).await;
    world
        .endpoint("/in", "policy => 'limits', concurrency => 2")
        .await;
    world.worker();
    world.emit_many("a", 200).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 200);
    assert!(world.receiver.max_open("/in") <= 2);
    let failed = "select count(*) from postrider.attempts where outcome <> 'delivered'";
    assert_eq!(world.one::<i64>(failed, &[]).await, 0);
}

/// The lease is renewed while a request is open, however long that takes and whoever joins.
#[tokio::test]
async fn g10_a_request_longer_than_the_lease_is_sent_once() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(8000))).await;
    let endpoint = world.endpoint("/in", "").await;
    for _ in 0..3 {
        world.worker_with(|o| o.lease = ms(3000));
    }
    let event = world.emit("a").await;
    let request = world.arrival("/in", event).await;
    world.worker_with(|o| o.lease = ms(3000));
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!(done.attempts, 1);
    assert!(Instant::now() >= request.arrived + ms(8000));
    assert_once_each(&world.receiver.requests(), 1);
}
