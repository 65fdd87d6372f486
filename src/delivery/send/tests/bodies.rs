//! Bodies: that they arrive whole, and for how long they are kept.

use tokio::io::AsyncRead;

use super::{super::DEAD_WITHIN, *};

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
