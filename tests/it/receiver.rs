//! The scripted receiver itself, since so many tests believe it.

use std::time::Duration;

use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Receiver;

type Sender = Client<HttpConnector, Full<bytes::Bytes>>;

async fn post(client: &Sender, url: &str, id: &str) -> Option<u16> {
    let request = hyper::Request::post(url)
        .header("Webhook-Id", id)
        .body(Full::from(format!("body of {id}")))
        .unwrap();
    client
        .request(request)
        .await
        .ok()
        .map(|answer| answer.status().as_u16())
}

#[tokio::test]
async fn it_does_as_scripted_and_remembers() {
    let receiver = Receiver::start(|request, nth| match (request.path.as_str(), nth.of_id) {
        ("/flaky", 1) => Reply::status(503).header("Retry-After", 7).body("busy"),
        ("/close", _) => Reply::Close,
        ("/reset", _) => Reply::Reset,
        ("/raw", _) => Reply::Raw(b"what?".to_vec()),
        ("/hang", _) => Reply::Hang,
        ("/slow", _) => Reply::status(200).after(Duration::from_millis(100)),
        _ => Reply::status(200),
    })
    .await;
    let client: Sender = Client::builder(TokioExecutor::new()).build_http();
    assert_eq!(post(&client, &receiver.url("/flaky"), "a").await, Some(503));
    assert_eq!(post(&client, &receiver.url("/flaky"), "a").await, Some(200));
    assert_eq!(receiver.connections(), 1);
    for path in ["/close", "/reset", "/raw"] {
        assert_eq!(
            post(&client, &receiver.url(path), "b").await,
            None,
            "{path}"
        );
    }
    let hanging = receiver.url("/hang");
    let limited = tokio::time::timeout(Duration::from_millis(100), post(&client, &hanging, "c"));
    assert!(limited.await.is_err());
    let slow = receiver.url("/slow");
    tokio::join!(post(&client, &slow, "d"), post(&client, &slow, "e"));
    let limit = Duration::from_secs(5);
    let all = receiver
        .wait_for(limit, |all| all.iter().all(|r| r.finished.is_some()))
        .await;
    assert_eq!(receiver.max_open("/slow"), 2);
    assert_eq!(receiver.max_open("/flaky"), 1);
    assert_eq!(receiver.open("/hang"), 0);
    let first = &all[0];
    assert_eq!(
        (first.status, first.nth.of_path, first.method.as_str()),
        (Some(503), 1, "POST")
    );
    assert_eq!(first.body, b"body of a");
    assert_eq!(first.header("WEBHOOK-ID"), Some("a"));
    assert_eq!(all[1].nth.of_id, 2);
}
