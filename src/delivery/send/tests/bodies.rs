//! Bodies: that they arrive whole, and for how long they are kept.

use std::io::Read;

use tokio::io::AsyncRead;

use super::{
    super::DEAD_WITHIN,
    repeats::{identity, trusting_anybody},
    *,
};

const LARGE: usize = 1 << 20;

/// Reads a head and a body of so many bytes.
async fn read_large(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut text = Vec::new();
    loop {
        let head = text.windows(4).position(|w| w == b"\r\n\r\n");
        if head.is_some_and(|at| text.len() >= at + 4 + LARGE) {
            return text.split_off(head.unwrap() + 4);
        }
        assert!(stream.read_buf(&mut text).await.unwrap() > 0);
    }
}

/// Bodies are most of what a worker holds, and requests that wait for an answer are many.
#[tokio::test]
async fn a_body_that_has_left_is_kept_no_longer_than_a_repeat_may_need_it() {
    let (arrived, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let (url, connections) = receiver(move |mut stream, _| {
        let arrived = arrived.clone();
        async move {
            for _ in 0..2 {
                let (answer, may_answer) = tokio::sync::oneshot::channel::<()>();
                arrived
                    .send((read_large(&mut stream).await, answer))
                    .unwrap();
                let _ = may_answer.await;
                let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(ok).await.unwrap();
            }
        }
    })
    .await;
    let sender = sender();
    let text: Vec<u8> = (0..LARGE).map(|n| (n % 251) as u8).collect();
    for kept_for in [Duration::ZERO, DEAD_WITHIN] {
        let body = Bytes::from(text.clone());
        let mut request = request(&url);
        request.body = body.clone();
        request.connect_timeout = Duration::from_secs(10);
        request.request_timeout = Duration::from_secs(10);
        let sender = sender.clone();
        let sending =
            tokio::spawn(
                async move { sender.send(request, || 0, || true, || async { true }).await },
            );
        let (received, answer) = bodies.recv().await.unwrap();
        let at = Instant::now();
        assert!(received == text, "other bytes arrived");
        while !body.is_unique() {
            assert!(at.elapsed() < kept_for + Duration::from_secs(5), "kept");
            assert!(!sending.is_finished());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        answer.send(()).unwrap();
        assert_eq!(sending.await.unwrap().unwrap().http_status, Some(200));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

/// Sends a body that no socket's buffers hold, and waits until nobody holds it any more.
async fn send_huge(sender: &Sender, url: &str) -> Answer {
    let body = Bytes::from(vec![b'1'; 32 << 20]);
    let mut request = request(url);
    request.body = body.clone();
    request.connect_timeout = Duration::from_secs(10);
    request.request_timeout = Duration::from_secs(2);
    let answer = sender.send(request, || 0, || true, || async { true }).await;
    let at = Instant::now();
    while !body.is_unique() {
        assert!(at.elapsed() < Duration::from_secs(10), "kept");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    answer.unwrap()
}

/// An answer ends a request, whether or not the receiver has read all of it.
#[tokio::test]
async fn a_body_that_its_receiver_does_not_read_is_let_go_in_time() {
    for status in [Some(413), None] {
        let (url, _) = receiver(move |mut stream, _| async move {
            stream.read_u8().await.unwrap();
            if status.is_some() {
                let early = b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(early).await.unwrap();
            }
            std::future::pending::<()>().await;
            drop(stream);
        })
        .await;
        assert_eq!(send_huge(&sender(), &url).await.http_status, status);
    }
}

/// Nor does TLS, which would say goodbye after what it could not write.
#[tokio::test]
async fn nor_is_it_kept_by_tls() {
    let acceptor = native_tls::TlsAcceptor::new(identity()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/hook", listener.local_addr().unwrap());
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let held = std::thread::spawn(move || {
        let mut stream = acceptor.accept(listener.accept().unwrap().0).unwrap();
        stream.read_exact(&mut [0; 100]).unwrap();
        let _ = ended.recv();
    });
    let answer = send_huge(&trusting_anybody(), &url).await;
    assert_eq!(code(&answer), Some(ErrorCode::Timeout));
    drop(end);
    held.join().unwrap();
}
