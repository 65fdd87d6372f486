//! G23: details of signing that receivers trip over: one timestamp for all attempts, which turns late retries
//! into replays; secrets read in two ways; a rotation that breaks what is being retried.

use std::time::UNIX_EPOCH;

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::signatures::{standard, stripe, verify_standard};
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

#[tokio::test]
async fn g23_during_a_rotation_both_secrets_sign_newest_first() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.worker();
    for style in ["stripe", "standard"] {
        let path = format!("/{style}");
        let settings = format!("event_types => '{{{style}}}', signature => '{style}'");
        let (id, old) = world.endpoint_with_secret(&path, &settings).await;
        let first = world.emit(style).await;
        world.arrival(&path, first).await;
        let rotate = "select postrider.rotate_secret($1, overlap => interval '1 hour')";
        let new: String = world.one(rotate, &[&id]).await;
        assert_ne!(old, new);
        let signed = |by: &[&str], request: &Recorded| {
            let time = request.the("Webhook-Timestamp");
            let signatures: Vec<_> = match style {
                "stripe" => by.iter().map(|s| stripe(s, request)).collect(),
                _ => by.iter().map(|s| standard(s, request)).collect(),
            };
            match style {
                "stripe" => format!("t={time},{}", signatures.join(",")),
                _ => signatures.join(" "),
            }
        };
        // Takes effect within a second.
        let both = eventually(LIMIT, async || {
            let event = world.emit(style).await;
            let request = world.arrival(&path, event).await;
            let signature = request.the("Webhook-Signature").to_owned();
            (signature != signed(&[&old], &request)).then_some((signature, request))
        })
        .await;
        assert_eq!(both.0, signed(&[&new, &old], &both.1));
        if style == "standard" {
            verify_standard(&old, &both.1);
            verify_standard(&new, &both.1);
        }
        let over =
            "update postrider.endpoint_secrets set expires_at = now() where expires_at is not null";
        world.run(over).await;
        eventually(LIMIT, async || {
            let event = world.emit(style).await;
            let request = world.arrival(&path, event).await;
            (request.the("Webhook-Signature") == signed(&[&new], &request)).then_some(())
        })
        .await;
    }
}

/// Signed when it leaves: after the attempt before it was answered, a replay and what waited long included.
#[tokio::test]
async fn g23_every_attempt_is_signed_anew_with_the_same_id() {
    let mut world =
        World::new(|_, nth| Reply::status(if nth.of_path > 2 { 200 } else { 500 })).await;
    let slower = r#"{"backoff_base": "1.1 s", "backoff_cap": "1.1 s"}"#;
    world.quick_policy("slower", slower).await;
    let (endpoint, secret) = world
        .endpoint_with_secret("/in", "policy => 'slower', signature => 'standard'")
        .await;
    world.worker();
    let event = world.emit("a").await;
    world.wait_for_status(event, endpoint, "delivered").await;
    tokio::time::sleep(crate::fixtures::worker::ms(1100)).await;
    let replay = format!("select postrider.replay_delivery('{event}', {endpoint})");
    world.run(&replay).await;
    let requests = world.arrived("/in", 4).await;
    let seconds = |at: std::time::SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    for pair in requests.windows(2) {
        let signed: u64 = pair[1].the("Webhook-Timestamp").parse().unwrap();
        assert!(
            signed > seconds(pair[0].arrived_at),
            "signed with an older attempt"
        );
        assert!(
            signed <= seconds(pair[1].arrived_at),
            "signed in the future"
        );
        assert_eq!(pair[0].id(), pair[1].id());
        verify_standard(&secret, &pair[1]);
    }
}
