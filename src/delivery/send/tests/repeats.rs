//! What dies on a kept-alive connection, and what became of it.

use std::{
    io::{Read, Write},
    process::Command,
};

use super::{super::DEAD_WITHIN, *};

/// A certificate that nobody trusts, and its key.
pub(super) fn identity() -> native_tls::Identity {
    let dir = std::env::temp_dir().join(format!("postrider-tls-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&dir).unwrap();
    let args = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout key -out crt";
    let made = Command::new("openssl")
        .args(args.split(' '))
        .current_dir(&dir)
        .output()
        .unwrap();
    assert!(made.status.success());
    let read = |name| std::fs::read(dir.join(name)).unwrap();
    let identity = native_tls::Identity::from_pkcs8(&read("crt"), &read("key")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    identity
}

/// A sender that takes such a certificate.
pub(super) fn trusting_anybody() -> Sender {
    let tls = native_tls::TlsConnector::builder()
        .danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    let guard = AddressGuard::new(vec![parse_network("127.0.0.0/8").unwrap()]);
    Sender::over(guard, Resolver::default(), tls)
}

/// TLS says goodbye before it closes: that is no byte of an answer.
#[tokio::test]
async fn a_connection_that_tls_had_closed_is_no_failure() {
    let acceptor = native_tls::TlsAcceptor::new(identity()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/hook", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = acceptor.accept(stream.unwrap()) else {
                continue;
            };
            let (mut text, mut buffer) = (String::new(), [0; 4096]);
            let mut requests = 0;
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                text.push_str(&String::from_utf8_lossy(&buffer[..n]));
                if !text.ends_with("{\"b\":1.0}") {
                    continue;
                }
                text.clear();
                requests += 1;
                if nth == 0 && requests == 2 {
                    let _ = stream.shutdown();
                    break;
                }
                let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(ok).unwrap();
            }
        }
    });
    let sender = trusting_anybody();
    for _ in 0..2 {
        let mut request = request(&url);
        request.connect_timeout = Duration::from_secs(10);
        request.request_timeout = Duration::from_secs(10);
        let answer = sender.send(request, || 0, || true, || async { true }).await;
        let answer = answer.unwrap();
        assert_eq!(answer.http_status, Some(200), "{answer:?}");
    }
}

/// The first try left, and the receiver may have it: that the repeat may not leave makes it no request unsent.
#[tokio::test]
async fn a_repeat_that_may_not_leave_leaves_the_first_try_as_it_was() {
    let (url, _) = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(ok).await.unwrap();
        read_request(&mut stream).await;
    })
    .await;
    let sender = sender();
    assert_eq!(send(&sender, &url).await.http_status, Some(200));
    let asked = Arc::new(AtomicUsize::new(0));
    let first_only = move || asked.fetch_add(1, Ordering::SeqCst) == 0;
    let answer = sender
        .send(request(&url), || 0, first_only, || async { true })
        .await;
    let code = code(&answer.expect("it was sent"));
    assert_eq!(code, Some(ErrorCode::Reset));
}

/// A receiver that falls over a request gets it again by its policy, and not at once.
#[tokio::test]
async fn what_dies_late_has_met_the_receiver() {
    let (url, connections) = receiver(|mut stream, _| async move {
        read_request(&mut stream).await;
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(ok).await.unwrap();
        read_request(&mut stream).await;
        tokio::time::sleep(DEAD_WITHIN + Duration::from_millis(100)).await;
    })
    .await;
    let sender = sender();
    assert_eq!(send(&sender, &url).await.http_status, Some(200));
    let mut second = request(&url);
    second.request_timeout = Duration::from_secs(10);
    let answer = sender.send(second, || 0, || true, || async { true }).await;
    assert_eq!(code(&answer.unwrap()), Some(ErrorCode::Reset));
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}
