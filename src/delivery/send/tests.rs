//! Against raw sockets: what a receiver can do to a request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::HeaderMap;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::super::{
    AddressGuard, Answer, ErrorCode, NotSent, Request, Resolver, Sender, address::parse_network,
};

mod bodies;
mod repeats;

const LIMIT: Duration = Duration::from_millis(400);

fn sender() -> Sender {
    resolving(Resolver::default())
}

fn resolving(resolver: Resolver) -> Sender {
    let loopback = parse_network("127.0.0.0/8").unwrap();
    Sender::new(AddressGuard::new(vec![loopback]), resolver).unwrap()
}

fn request(url: &str) -> Request {
    Request {
        uri: url.parse().unwrap(),
        event_id: uuid::Uuid::nil(),
        event_type: "a.b".into(),
        number: 3,
        timestamp: 1_796_094_309,
        headers: HeaderMap::new(),
        signature: "t=1,v1=00".into(),
        body: Bytes::from_static(b"{\"b\":1.0}"),
        connect_timeout: LIMIT,
        request_timeout: LIMIT,
    }
}

async fn send(sender: &Sender, url: &str) -> Answer {
    let answer = sender
        .send(request(url), || 0, || true, || async { true })
        .await;
    answer.unwrap()
}

/// Accepts connections and hands each, with its number from 1, to `serve`.
async fn receiver<F>(
    serve: impl Fn(TcpStream, usize) -> F + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let nth = counter.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::spawn(serve(stream, nth));
        }
    });
    (url, connections)
}

/// Reads one request whole; its text, or `None` at the end of the connection.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    while !String::from_utf8_lossy(&text).contains("\r\n\r\n{\"b\":1.0}") {
        match stream.read(&mut buffer).await {
            Ok(n) if n > 0 => text.extend_from_slice(&buffer[..n]),
            _ => return None,
        }
    }
    String::from_utf8(text).ok()
}

async fn answering(reply: &'static str) -> String {
    let (url, _) = receiver(move |mut stream, _| async move {
        while read_request(&mut stream).await.is_some() {
            let _ = stream.write_all(reply.as_bytes()).await;
        }
    })
    .await;
    url
}

fn code(answer: &Answer) -> Option<ErrorCode> {
    answer.error.as_ref().map(|e| e.0)
}

#[tokio::test]
async fn what_goes_over_the_wire() {
    let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let (url, _) = receiver(move |mut stream, _| {
        let sent = sent.clone();
        async move {
            sent.send(read_request(&mut stream).await.unwrap()).unwrap();
            stream
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
        }
    })
    .await;
    let mut with_header = request(&url);
    with_header
        .headers
        .insert("x-team", "billing".parse().unwrap());
    let answer = sender()
        .send(with_header, || 0, || true, || async { true })
        .await
        .unwrap();
    assert_eq!(answer.http_status, Some(204));
    let text = seen.recv().await.unwrap().to_lowercase();
    assert!(text.starts_with("post /hook http/1.1\r\n"), "{text}");
    for line in [
        "content-type: application/json",
        "content-length: 9",
        "x-team: billing",
        "webhook-attempt: 3",
        "webhook-id: 00000000-0000-0000-0000-000000000000",
        "webhook-timestamp: 1796094309",
        "webhook-signature: t=1,v1=00",
        "webhook-event-type: a.b",
        concat!("user-agent: postrider/", env!("CARGO_PKG_VERSION")),
    ] {
        assert!(
            text.contains(&format!("\r\n{line}\r\n")),
            "{line} in {text}"
        );
    }
    assert!(
        !text.contains("transfer-encoding") && !text.contains("expect:"),
        "{text}"
    );
}

#[tokio::test]
async fn a_closed_gate_lets_no_byte_out() {
    let (url, connections) = receiver(|mut stream, _| async move {
        let mut byte = [0];
        // The connection is made, and nothing comes over it.
        assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0);
    })
    .await;
    let sender = sender();
    let answer = sender
        .send(request(&url), || 0, || false, || async { true })
        .await;
    assert_eq!(answer.unwrap_err(), NotSent::GateClosed);
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_clock_runs_over_the_whole_request() {
    let silent = receiver(|stream, _| async move {
        let _open = stream;
        std::future::pending().await
    });
    let trickle = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" {
            let _ = stream.write_all(&[*byte]).await;
            tokio::time::sleep(LIMIT / 2).await;
        }
    });
    for (url, _) in [silent.await, trickle.await] {
        let began = Instant::now();
        let answer = send(&sender(), &url).await;
        assert_eq!(answer.http_status, None);
        assert_eq!(code(&answer), Some(ErrorCode::Timeout));
        // Each byte in time, all of them in nineteen times it; between, for a machine that is slow.
        assert!(began.elapsed() < LIMIT * 12);
    }
}

#[tokio::test]
async fn the_head_decides_whatever_becomes_of_the_body() {
    let stalled = answering("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello").await;
    let answer = send(&sender(), &stalled).await;
    assert_eq!(answer.http_status, Some(200));
    assert_eq!(answer.excerpt.as_deref(), Some("hello"));
    assert!(answer.error.unwrap().1.contains("did not end in time"));
}

#[tokio::test]
async fn no_more_than_a_bound_is_read_and_the_connection_is_dropped() {
    let (url, connections) = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 10000000000\r\n\r\n")
            .await;
        while stream.write_all(&[b'x'; 65536]).await.is_ok() {}
    })
    .await;
    let sender = sender();
    for _ in 0..2 {
        let answer = send(&sender, &url).await;
        assert_eq!(answer.http_status, Some(500));
        assert_eq!(answer.excerpt.unwrap(), "x".repeat(500));
        assert!(answer.duration < LIMIT, "it stops reading by itself");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn odd_answers_are_told_apart() {
    let oversized = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1_000_000)).leak();
    for (reply, status, error) in [
        (
            "HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
            Some(999),
            None,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            Some(201),
            None,
        ),
        ("\0\x01garbage\r\n\r\n", None, Some(ErrorCode::BadAnswer)),
        (oversized, None, Some(ErrorCode::BadAnswer)),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\na\0b\0cd",
            Some(200),
            None,
        ),
    ] {
        let answer = send(&sender(), &answering(reply).await).await;
        assert_eq!(
            (answer.http_status, code(&answer)),
            (status, error),
            "{reply:.40}: {answer:?}"
        );
        assert!(!answer.excerpt.unwrap_or_default().contains('\0'));
    }
}

#[tokio::test]
async fn redirects_are_named_and_not_followed() {
    let (target, seen) = receiver(|_, _| async {}).await;
    for status in [301, 302, 303, 307, 308] {
        let reply =
            format!("HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
                .leak();
        let answer = send(&sender(), &answering(reply).await).await;
        assert_eq!(answer.http_status, Some(status));
        assert!(answer.error.unwrap().1.contains(&target));
    }
    assert_eq!(seen.load(Ordering::SeqCst), 0);
}

/// Answers the first request of a connection and closes it at the second, with FIN or with RST.
async fn one_request_a_connection(reset: bool) -> (String, Arc<AtomicUsize>) {
    receiver(move |mut stream, _| async move {
        read_request(&mut stream).await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await
            .unwrap();
        if read_request(&mut stream).await.is_some() && reset {
            socket_reset(stream);
        }
    })
    .await
}

#[allow(deprecated)] // the only way to an RST; the wait it warns of is zero
fn socket_reset(stream: TcpStream) {
    stream.set_linger(Some(Duration::ZERO)).unwrap();
}

#[tokio::test]
async fn a_dead_kept_alive_connection_costs_no_attempt() {
    for reset in [false, true] {
        let (url, connections) = one_request_a_connection(reset).await;
        let sender = sender();
        let asked = AtomicUsize::new(0);
        for _ in 0..10 {
            let repeat = || async {
                asked.fetch_add(1, Ordering::SeqCst);
                true
            };
            let answer = sender
                .send(request(&url), || 0, || true, repeat)
                .await
                .unwrap();
            assert_eq!(
                (answer.http_status, code(&answer)),
                (Some(200), None),
                "{answer:?}"
            );
        }
        assert!(
            asked.load(Ordering::SeqCst) >= 4,
            "reused connections did die"
        );
        assert!(connections.load(Ordering::SeqCst) >= 5);
    }
}

#[tokio::test]
async fn without_leave_nothing_is_repeated_and_on_a_fresh_connection_never() {
    let (url, _) = one_request_a_connection(false).await;
    let sender = sender();
    let _ = send(&sender, &url).await;
    let refused = sender
        .send(request(&url), || 0, || true, || async { false })
        .await
        .unwrap();
    assert_eq!(code(&refused), Some(ErrorCode::Reset));

    let (url, connections) = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
    })
    .await;
    let answer = send(&sender, &url).await;
    assert_eq!(code(&answer), Some(ErrorCode::Reset));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn refused_addresses_see_no_connection() {
    let (url, connections) = receiver(|_, _| async {}).await;
    let port = url
        .rsplit_once(':')
        .unwrap()
        .1
        .trim_end_matches("/hook")
        .to_owned();
    let strict = Sender::new(AddressGuard::default(), Resolver::default()).unwrap();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"] {
        let answer = send(&strict, &format!("http://{host}:{port}/")).await;
        assert_eq!(
            code(&answer),
            Some(ErrorCode::AddressRefused),
            "{host}: {answer:?}"
        );
    }
    assert_eq!(connections.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn failures_to_connect_are_told_apart() {
    let unused = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let refused = send(&sender(), &format!("http://{unused}/")).await;
    assert_eq!(code(&refused), Some(ErrorCode::Connect));

    let mut patient = request("http://no-such-name.invalid/");
    patient.connect_timeout = Duration::from_secs(20);
    patient.request_timeout = Duration::from_secs(20);
    let unknown = sender()
        .send(patient, || 0, || true, || async { true })
        .await
        .unwrap();
    assert_eq!(code(&unknown), Some(ErrorCode::Dns), "{unknown:?}");

    let plain = answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let (tls, _) = receiver(|mut stream, _| async move {
        let _ = stream.write_all(b"not TLS at all\r\n").await;
    })
    .await;
    drop(plain);
    let answer = send(&sender(), &tls.replace("http:", "https:")).await;
    assert_eq!(code(&answer), Some(ErrorCode::Tls), "{answer:?}");
}

/// Requests that got no thread for their lookup are no attempts; one whose own lookup hangs is.
#[tokio::test]
async fn a_request_that_waits_for_a_lookup_was_not_made() {
    let (hang, hung) = std::sync::mpsc::channel::<()>();
    let hung = std::sync::Mutex::new(hung);
    let sender = resolving(Resolver::new(move |_| {
        // Until the test ends.
        let _ = hung.lock().map(|hung| hung.recv());
        Ok(Vec::new())
    }));
    let mut all = tokio::task::JoinSet::new();
    for n in 0..100 {
        let (sender, url) = (sender.clone(), format!("http://dead{}.test/", n / 2));
        all.spawn(async move {
            let sent = sender.send(request(&url), || 0, || true, || async { true });
            sent.await.map(|answer| code(&answer))
        });
    }
    let all = all.join_all().await;
    let made = all.iter().filter(|r| r.is_ok()).count();
    assert_eq!(made, 2 * 32, "those whose lookup ran");
    for sent in all {
        match sent {
            Ok(code) => assert_eq!(code, Some(ErrorCode::ConnectTimeout)),
            Err(reason) => assert_eq!(reason, NotSent::NoLookup),
        }
    }
    drop(hang);
}

#[tokio::test]
async fn each_new_connection_looks_its_name_up_anew() {
    let (url, _) = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .await;
    })
    .await;
    let url = url.replace("127.0.0.1", "name.test");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let sender = resolving(Resolver::new(move |host| {
        assert_eq!(host, "name.test");
        match counter.fetch_add(1, Ordering::SeqCst) {
            0 => Err(std::io::Error::other("no such name")),
            2 => Ok(vec![([10, 0, 0, 5], 0).into()]),
            // One inner address among others is enough to refuse them all.
            3 => Ok(vec![([127, 0, 0, 1], 0).into(), ([10, 0, 0, 5], 0).into()]),
            4 => Ok(Vec::new()),
            _ => Ok(vec![([127, 0, 0, 1], 0).into()]),
        }
    }));
    for expected in [
        Some(ErrorCode::Dns),
        None,
        Some(ErrorCode::AddressRefused),
        Some(ErrorCode::AddressRefused),
        Some(ErrorCode::Dns),
        None,
    ] {
        let answer = send(&sender, &url).await;
        assert_eq!(code(&answer), expected, "{answer:?}");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 6);
}
