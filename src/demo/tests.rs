//! The judges: what is right passes, and each thing that is wrong is found.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, Mac};
use hyper::HeaderMap;
use sha2::Sha256;
use uuid::Uuid;

use super::cast::{self, Endpoint, Role, Style};
use super::judge::{Checks, Evidence};
use super::receiver::Seen;
use super::scenario::{Played, QUEUED};
use super::sql::Logged;
use super::{Emitted, check, invariants, isolation};

struct World {
    endpoints: Vec<Endpoint>,
    played: Played,
    seen: Vec<Seen>,
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|p| hmac.update(p));
    hmac.finalize().into_bytes().to_vec()
}

fn seen(
    endpoint: &Endpoint,
    event: &Emitted,
    attempt: u32,
    status: u16,
    at_ms: u64,
    for_ms: u64,
) -> Seen {
    let stamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let id = event.id.to_string();
    let body = event.body.as_bytes();
    let value = match endpoint.part.style {
        Style::Stripe => {
            let mac = mac(endpoint.secret.as_bytes(), &[stamp.as_bytes(), b".", body]);
            format!("t={stamp},v1={}", hex::encode(mac))
        }
        Style::Standard => {
            let key = STANDARD.decode(&endpoint.secret[6..]).unwrap();
            let mac = mac(&key, &[id.as_bytes(), b".", stamp.as_bytes(), b".", body]);
            format!("v1,{}", STANDARD.encode(mac))
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", stamp.parse().unwrap());
    headers.insert("webhook-signature", value.parse().unwrap());
    headers.insert("webhook-attempt", attempt.into());
    let arrived = event.committed + Duration::from_millis(at_ms);
    Seen {
        arrived,
        answered: Some(arrived + Duration::from_millis(for_ms)),
        endpoint: endpoint.part.name.to_owned(),
        headers,
        body: Bytes::copy_from_slice(body),
        status,
    }
}

/// A demo in which everything held.
fn world() -> World {
    let start = Instant::now();
    let emitted = |n: u128, tenant, event_type, body| Emitted {
        id: Uuid::from_u128(n),
        tenant,
        event_type,
        body: Cow::Borrowed(body),
        committed: start,
    };
    let parts = std::iter::once(cast::spec()).chain(cast::github());
    let endpoints: Vec<Endpoint> = (1..)
        .zip(parts)
        .map(|(id, part)| Endpoint {
            id,
            secret: format!("whsec_{}", STANDARD.encode([7; 32])),
            part,
        })
        .collect();
    let emitted = vec![
        emitted(1, cast::SPEC, "invoice.paid", "{}"),
        emitted(2, cast::SPEC, "invoice.updated", "[2]"),
        emitted(3, cast::GITHUB, "push", "[3]"),
        emitted(4, cast::GITHUB, "issues.opened", "[4]"),
        emitted(5, cast::GITHUB, "issues.closed", "[5]"),
        emitted(6, cast::GITHUB, "check_run.created", "[6]"),
        emitted(7, cast::GITHUB, "pull_request.opened", "[7]"),
    ];
    let mut all = vec![
        seen(&endpoints[0], &emitted[0], 1, 500, 10, 1),
        seen(&endpoints[0], &emitted[0], 2, 429, 1_000, 100),
        seen(&endpoints[0], &emitted[1], 1, 200, 6_101, 1),
        seen(&endpoints[0], &emitted[0], 3, 200, 6_103, 1),
    ];
    for event in &emitted[2..] {
        for endpoint in &endpoints[1..] {
            let (status, time) = match endpoint.part.role {
                Role::Slow => (200, 900),
                Role::Refusing => (422, 1),
                Role::Fast | Role::Spec => (200, 1),
            };
            if endpoint.part.wants(event.tenant, event.event_type) {
                let at = if time == 900 { 400 } else { 20 };
                all.push(seen(endpoint, event, 1, status, at, time));
            }
        }
    }
    World {
        endpoints,
        played: Played {
            subject: emitted[0].id,
            emitted,
            behind: QUEUED,
        },
        seen: all,
    }
}

/// How many checks a world breaks; the database agrees with the receiver.
fn broken(world: &World) -> usize {
    let mut seen = world.seen.clone();
    seen.sort_by_key(|s| s.arrived);
    let id = |name: &str| {
        world
            .endpoints
            .iter()
            .find(|e| e.part.name == name)
            .unwrap()
            .id
    };
    let ended = seen.iter().filter(|s| s.accepted() || s.status == 422);
    let evidence = Evidence {
        endpoints: &world.endpoints,
        emitted: world.played.emitted.iter().map(|e| (e.id, e)).collect(),
        outcomes: ended
            .map(|s| {
                let status = if s.accepted() {
                    "delivered"
                } else {
                    "rejected"
                };
                (id(&s.endpoint), status.to_owned(), 1)
            })
            .collect(),
        attempts: seen
            .iter()
            .map(|s| Logged {
                event: s.event().unwrap(),
                endpoint: id(&s.endpoint),
                number: i32::try_from(s.attempt()).unwrap(),
                status: Some(i32::from(s.status)),
                worker: Uuid::from_u128(u128::from(s.status)),
            })
            .collect(),
        seen,
    };
    let mut checks = Checks::default();
    check::everywhere(&evidence, &mut checks);
    isolation::check(&evidence, &mut checks);
    invariants::expectations(&evidence, &world.played, &mut checks);
    invariants::invariants(&evidence, &world.played, &mut checks);
    checks.broken()
}

#[test]
fn a_world_in_order_holds() {
    assert_eq!(broken(&world()), 0);
}

#[test]
fn a_request_in_the_pause_is_found() {
    let mut world = world();
    world.seen[2].arrived -= Duration::from_millis(2);
    assert_eq!(broken(&world), 1);
}

#[test]
fn another_id_on_one_attempt_is_found() {
    let mut world = world();
    world.seen[3].headers.insert(
        "webhook-id",
        Uuid::from_u128(2).to_string().parse().unwrap(),
    );
    assert!(broken(&world) > 0);
}

#[test]
fn a_changed_body_is_found_by_bytes_and_by_signature() {
    let mut world = world();
    world.seen[5].body = Bytes::from_static(b"[3] ");
    assert_eq!(broken(&world), 2);
}

#[test]
fn a_duplicate_is_found() {
    let mut world = world();
    let again = world
        .seen
        .iter()
        .find(|s| s.endpoint == "archive")
        .unwrap()
        .clone();
    world.seen.push(again);
    assert!(broken(&world) > 0);
}

#[test]
fn a_retried_refusal_is_found() {
    let mut world = world();
    let again = world.seen.iter().find(|s| s.status == 422).unwrap().clone();
    world.seen.push(again);
    assert!(broken(&world) > 0);
}

#[test]
fn a_lost_request_is_found() {
    let mut world = world();
    world.seen.remove(4);
    assert!(broken(&world) > 0);
}

#[test]
fn a_fast_endpoint_that_waited_beside_the_slow_one_is_found() {
    let mut world = world();
    for seen in world.seen.iter_mut().filter(|s| s.endpoint == "archive") {
        seen.arrived += Duration::from_millis(200);
        seen.answered = seen.answered.map(|t| t + Duration::from_millis(200));
    }
    assert_eq!(broken(&world), 1);
}
