//! G07: an answer without an end. A receiver sends a body, a head or interim answers that never stop; who keeps
//! it all runs out of memory, who stores it cannot write the log, who reads on is busy for ever.

use std::time::Duration;

use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

/// Most bytes that are read of an answer's body.
const CAP: u64 = 16 << 10;

fn chunk() -> Vec<u8> {
    let mut chunk = b"10000\r\n".to_vec();
    chunk.extend([b'x'; 0x10000]);
    chunk.extend(b"\r\n");
    chunk
}

/// The head first, then the same over and over.
fn after_head(n: usize, head: &str, more: Vec<u8>) -> Vec<u8> {
    match n {
        0 => head.as_bytes().to_vec(),
        _ => more,
    }
}

/// Every form of an answer that does not end.
fn endless(path: &str) -> Reply {
    let piece: fn(usize) -> Vec<u8> = match path {
        "/200-chunks" => |n| {
            after_head(
                n,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                chunk(),
            )
        },
        "/500-chunks" => |n| {
            after_head(
                n,
                "HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n",
                chunk(),
            )
        },
        "/200-length" => |n| {
            after_head(
                n,
                "HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n",
                chunk(),
            )
        },
        "/500-length" => |n| {
            after_head(
                n,
                "HTTP/1.1 500 No\r\nContent-Length: 10000000000\r\n\r\n",
                chunk(),
            )
        },
        "/200-until-close" => |n| after_head(n, "HTTP/1.1 200 OK\r\n\r\n", chunk()),
        "/200-trailers" => |n| {
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
            after_head(n, head, b"X-More: and more\r\n".repeat(1000))
        },
        "/200-chunk-size" => |n| {
            after_head(
                n,
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                vec![b'0'; 9999],
            )
        },
        "/head" => |n| {
            after_head(
                n,
                "HTTP/1.1 200 OK\r\n",
                b"X-More: and more\r\n".repeat(1000),
            )
        },
        "/status-line" => |n| after_head(n, "HTTP/1.1 200 ", vec![b'O'; 9999]),
        "/interim" => |_| b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100),
        other => panic!("{other}"),
    };
    Reply::Stream(piece, Duration::ZERO)
}

/// Path, status of the delivery after its only attempt, HTTP status, error code.
const FORMS: [(&str, &str, Option<i32>, Option<&str>); 10] = [
    ("/200-chunks", "delivered", Some(200), None),
    ("/200-length", "delivered", Some(200), None),
    ("/200-until-close", "delivered", Some(200), None),
    ("/200-trailers", "delivered", Some(200), None),
    ("/200-chunk-size", "delivered", Some(200), None),
    ("/500-chunks", "exhausted", Some(500), None),
    ("/500-length", "exhausted", Some(500), None),
    ("/head", "exhausted", None, Some("bad_answer")),
    ("/status-line", "exhausted", None, Some("bad_answer")),
    ("/interim", "exhausted", None, Some("timeout")),
];

#[tokio::test]
async fn g07_an_endless_answer_is_judged_by_its_status_and_cut_off() {
    let mut world = World::new(|request, _| endless(&request.path)).await;
    let limits = r#"{"max_attempts": 1, "request_timeout": "2 s"}"#;
    world.quick_policy("once", limits).await;
    let mut endpoints = Vec::new();
    for form in FORMS {
        let endpoint = world
            .endpoint(form.0, "policy => 'once', concurrency => 1")
            .await;
        endpoints.push((form, endpoint));
    }
    world.worker();
    let events = [world.emit("a").await, world.emit("a").await];
    for ((path, status, http_status, code), endpoint) in endpoints {
        for event in events {
            let ended = world.wait_for_status(event, endpoint, status).await;
            assert_eq!(ended.attempts, 1, "{path}");
            let sql = "select http_status, error_code, answer, duration_ms from postrider.attempts
                        where event_id = $1 and endpoint_id = $2";
            let row = world
                .sql
                .query_one(sql, &[&event, &endpoint])
                .await
                .unwrap();
            assert_eq!(row.get::<_, Option<i32>>(0), http_status, "{path}");
            assert_eq!(row.get::<_, Option<&str>>(1), code, "{path}");
            let kept = row.get::<_, Option<&str>>(2).unwrap_or_default();
            assert!(kept.len() <= 500, "{path}: {} bytes kept", kept.len());
        }
        // The connection was dropped: it carried one request, and the receiver can write no more.
        let requests = world.receiver.wait_for(ms(5000), |all| {
            all.iter()
                .filter(|r| r.path == path && r.finished.is_some())
                .count()
                == 2
        });
        for request in requests.await.iter().filter(|r| r.path == path) {
            assert_eq!(request.nth.of_connection, 1, "{path}");
        }
    }
}

/// An endless 429 pauses at once, an endless 410 disables at once.
#[tokio::test]
async fn g07_an_endless_answer_that_stops_its_endpoint_does_so_at_once() {
    let mut world = World::new(|request, _| {
        let piece: fn(usize) -> Vec<u8> = match request.path.as_str() {
            "/429" => |n| after_head(n, "HTTP/1.1 429 Slow\r\nRetry-After: 60\r\n\r\n", chunk()),
            _ => |n| after_head(n, "HTTP/1.1 410 Gone\r\n\r\n", chunk()),
        };
        Reply::Stream(piece, Duration::ZERO)
    })
    .await;
    let limited = world.endpoint("/429", "concurrency => 1").await;
    let gone = world.endpoint("/410", "concurrency => 1").await;
    world.worker();
    let event = world.emit_many("a", 5).await[0];
    world.wait_for_status(event, gone, "rejected").await;
    let state = "select state from postrider.endpoint_health where endpoint_id = $1";
    assert_eq!(world.one::<String>(state, &[&gone]).await, "disabled");
    crate::fixtures::eventually(ms(5000), async || {
        (world.one::<String>(state, &[&limited]).await == "rate_limited").then_some(())
    })
    .await;
    for path in ["/429", "/410"] {
        assert_eq!(world.receiver.requests_to(path).len(), 1, "{path}");
    }
}

/// Memory in KiB, a line of `/proc/<pid>/status`.
#[cfg(target_os = "linux")]
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Fifty such receivers at once, several times each: the program grows by no more than what it may read.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn g07_fifty_endless_answers_at_once_do_not_fill_the_memory() {
    let world = World::new(|request, _| match request.path.as_str() {
        "/idle" => Reply::status(200),
        path => endless(path.rsplit_once('?').unwrap().0),
    })
    .await;
    let limits = r#"{"max_attempts": 2, "request_timeout": "2 s"}"#;
    world.quick_policy("twice", limits).await;
    let process = world.process(&[]);
    world.endpoint("/idle", "event_types => '{idle}'").await;
    world.emit("idle").await;
    world.settled().await;
    let idle = memory(process.pid(), "VmRSS:");
    // Those that are cut by their size; the others keep two processors busy until the deadline.
    let by_clock = ["/interim", "/200-chunk-size"];
    let forms = FORMS
        .map(|f| f.0)
        .into_iter()
        .filter(|f| !by_clock.contains(f));
    let forms: Vec<&str> = forms.collect();
    for (n, form) in (0..50).zip(forms.iter().cycle()) {
        let path = format!("{form}?{n}");
        world
            .endpoint(&path, "policy => 'twice', event_types => '{a}'")
            .await;
    }
    world.emit_many("a", 3).await;
    world.settled().await;
    let most = memory(process.pid(), "VmHWM:");
    let allowed = idle + 50 * CAP / 1024 + 50 * 1024;
    println!("idle {idle} KiB, at most {most} KiB, allowed {allowed} KiB");
    assert!(most <= allowed, "{most} KiB, from {idle} KiB idle");
}
