//! G09: time spent waiting for a turn counts as a timeout, or a timeout as success.

use crate::fixtures::arrivals::{assert_once_each, assert_pace};
use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

const LIMITS: &str = r#"{"connect_timeout": "500 ms", "request_timeout": "1 s"}"#;

async fn assert_none_failed(world: &World) {
    let failed =
        "select count(*) from postrider.attempts where outcome <> 'delivered' or number > 1";
    assert_eq!(world.one::<i64>(failed, &[]).await, 0);
}

/// Waiting for a token of the pace, for three times the request's limit.
#[tokio::test]
async fn g09_waiting_for_the_pace_is_no_timeout() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(30))).await;
    world.quick_policy("limits", LIMITS).await;
    world
        .endpoint("/in", "policy => 'limits', rate => 5, burst => 1")
        .await;
    world.worker();
    world.emit_many("a", 15).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 15);
    assert_pace(&world.receiver.requests(), 5.0, 1);
    assert_none_failed(&world).await;
}

/// Waiting for one of the worker's own slots, which many endpoints share.
#[tokio::test]
async fn g09_waiting_for_the_workers_slots_is_no_timeout() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(30))).await;
    world.quick_policy("limits", LIMITS).await;
    for n in 0..20 {
        world
            .endpoint(&format!("/{n}"), "policy => 'limits', concurrency => 5")
            .await;
    }
    world.worker_with(|o| o.max_in_flight = 2);
    world.emit_many("a", 8).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 160);
    assert_none_failed(&world).await;
}

/// A queue that takes longer than the lease, with others there to take over: nobody's lease runs out over what
/// only waits, and nothing is sent twice.
#[tokio::test]
async fn g09_a_queue_longer_than_the_lease_is_sent_once() {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(100))).await;
    let endpoint = world.endpoint("/in", "concurrency => 1").await;
    for _ in 0..3 {
        world.worker_with(|o| o.lease = ms(3000));
    }
    world.emit_many("a", 45).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 45);
    assert_none_failed(&world).await;
    let lapses = "select lapses from postrider.endpoint_state where endpoint_id = $1";
    assert_eq!(world.one::<i32>(lapses, &[&endpoint]).await, 0);
}

/// Delivered takes a whole status line with a 2xx, whatever else comes.
#[tokio::test]
async fn g09_only_a_status_that_could_be_read_is_a_success() {
    let answers: [(&str, &[u8]); 9] = [
        ("nothing", b""),
        ("half", b"HTTP/1.1 20"),
        ("no head's end", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"),
        (
            "four digits",
            b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
        ),
        ("two digits", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
        ("no version", b"200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("another protocol", b"SSH-2.0-OpenSSH_9.2p1\r\n"),
        ("continue, then nothing", b"HTTP/1.1 100 Continue\r\n\r\n"),
        ("body alone", b"{\"status\": 200, \"ok\": true}\r\n\r\n"),
    ];
    let mut world = World::new(move |request, _| {
        let n: Option<usize> = request.path[1..].parse().ok();
        n.map_or(Reply::Hang, |n| Reply::Raw(answers[n].1.to_vec()))
    })
    .await;
    let once = r#"{"connect_timeout": "500 ms", "request_timeout": "1 s", "max_attempts": 1}"#;
    world.quick_policy("once", once).await;
    let mut endpoints = Vec::new();
    for (n, (name, _)) in answers.iter().enumerate() {
        let id = world.endpoint(&format!("/{n}"), "policy => 'once'").await;
        endpoints.push((*name, id));
    }
    let silent = world.endpoint("/silent", "policy => 'once'").await;
    endpoints.push(("silence", silent));
    world.worker();
    let event = world.emit("a").await;
    for (name, endpoint) in endpoints {
        let ended = world.wait_for_status(event, endpoint, "exhausted").await;
        assert_eq!((ended.attempts, ended.failures), (1, 1), "{name}");
        assert_eq!(ended.last_http_status, None, "{name}");
        assert!(ended.last_error.is_some(), "{name}");
    }
    let timeouts =
        "select array_agg(endpoint_id) from postrider.attempts where error_code = 'timeout'";
    assert_eq!(world.one::<Vec<i64>>(timeouts, &[]).await, [silent]);
}
