//! G22: the bytes sent are not the bytes given, or not those signed. Key order, number forms and escapes change
//! between storing, signing, sending and a retry, and receivers cannot verify; or the body comes in chunks.

use std::collections::HashSet;
use std::time::{Duration, UNIX_EPOCH};

use crate::fixtures::http::Reply;
use crate::fixtures::signatures::{standard, stripe, verify_standard};
use crate::fixtures::world::World;

/// What storage as jsonb or a float would change: a number of 21 digits, 1e2, a repeated key, escapes.
const PAYLOAD: &str =
    r#"{"b":1.0,"a":123456789012345678901,"z":1e2,"u":"\u00e9 \u2028 / é 😀","b":2}"#;

#[tokio::test]
async fn g22_bytes_headers_and_signatures_over_two_retries() {
    let mut world =
        World::new(|_, nth| Reply::status(if nth.of_path > 2 { 200 } else { 500 })).await;
    // Over a second, so that each attempt has another timestamp.
    let slower = r#"{"backoff_base": "1.1 s", "backoff_cap": "1.1 s"}"#;
    world.quick_policy("slower", slower).await;
    let mut endpoints = Vec::new();
    for (path, style) in [
        ("/in?style=stripe&x=%20", "stripe"),
        ("/standard", "standard"),
    ] {
        let settings = format!(
            "policy => 'slower', signature => '{style}', headers => '{{\"X-Tenant\": \"a b\"}}'"
        );
        let (id, secret) = world.endpoint_with_secret(path, &settings).await;
        endpoints.push((path, style, id, secret));
    }
    world.worker();
    let sql = "select postrider.emit_event('invoice.paid', $1::text)";
    let event: uuid::Uuid = world.one(sql, &[&PAYLOAD]).await;
    for (path, style, id, secret) in &endpoints {
        let requests = world.arrived(path, 3).await;
        let ended = world.wait_for_status(event, *id, "delivered").await;
        assert_eq!((ended.attempts, ended.failures), (3, 2));
        for (request, number) in requests.iter().zip(1..) {
            assert_eq!(request.method, "POST");
            assert_eq!(std::str::from_utf8(&request.body).unwrap(), PAYLOAD);
            assert_eq!(request.the("Content-Length"), PAYLOAD.len().to_string());
            assert_eq!(request.the("Content-Type"), "application/json");
            let agent = concat!("postrider/", env!("CARGO_PKG_VERSION"));
            assert_eq!(request.the("User-Agent"), agent);
            assert_eq!(request.the("Host"), world.receiver.address().to_string());
            assert_eq!(request.the("Webhook-Id"), event.to_string());
            assert_eq!(request.the("Webhook-Event-Type"), "invoice.paid");
            assert_eq!(request.the("Webhook-Attempt"), number.to_string());
            assert_eq!(request.the("X-Tenant"), "a b");
            for name in ["Transfer-Encoding", "Expect"] {
                assert_eq!(request.header(name), None);
            }
            let timestamp: u64 = request.the("Webhook-Timestamp").parse().unwrap();
            let arrived = request.arrived_at.duration_since(UNIX_EPOCH).unwrap();
            let off = arrived.abs_diff(Duration::from_secs(timestamp));
            assert!(off < Duration::from_secs(2), "{off:?}");
            let signature = request.the("Webhook-Signature");
            if *style == "stripe" {
                assert_eq!(
                    signature,
                    format!("t={timestamp},{}", stripe(secret, request))
                );
            } else {
                verify_standard(secret, request);
                assert_eq!(signature, standard(secret, request));
            }
        }
        let times: HashSet<_> = requests
            .iter()
            .map(|r| r.the("Webhook-Timestamp"))
            .collect();
        assert_eq!(times.len(), 3, "each attempt is signed anew");
    }
    // As json it is the same text.
    let sql = "select postrider.emit_event('invoice.paid', $1::text::json)";
    let event: uuid::Uuid = world.one(sql, &[&PAYLOAD]).await;
    let request = world.arrival("/standard", event).await;
    assert_eq!(std::str::from_utf8(&request.body).unwrap(), PAYLOAD);
}
