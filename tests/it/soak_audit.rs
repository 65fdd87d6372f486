//! The audit of `./dev soak` finds what it is there to find, and nothing in a run without fault.

#[path = "../soak/audit/mod.rs"]
mod audit;

use hmac::{Hmac, Mac};
use sha2::Sha256;
use uuid::Uuid;

use audit::evidence::{Delivery, Emitted, Ending, Endpoint, Evidence, Freeze, Seen, Span, Stopped};

const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
const PATH: &str = "/in";
const BODY: &str = r#"{"n":1}"#;

fn seen(event: Uuid, body: &str, arrived: f64, finished: f64) -> Seen {
    let mut hmac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    hmac.update(format!("100.{body}").as_bytes());
    let signature = hex::encode(hmac.finalize().into_bytes());
    Seen {
        path: PATH.into(),
        id: event.to_string(),
        timestamp: "100".into(),
        signature: format!("t=100,v1={signature}"),
        body: body.into(),
        arrived,
        finished: Some(finished),
        accepted: false,
    }
}

/// One event, refused at 10 s and accepted at 11 s, in a run with a freeze from 40 to 50 s; a lease is 6 s.
fn sound() -> (Evidence, Uuid) {
    let event = Uuid::new_v4();
    let mut evidence = Evidence {
        lease: 6.0,
        request_timeout: 3.0,
        ..Evidence::default()
    };
    evidence.endpoints.push(Endpoint {
        id: 1,
        path: PATH.into(),
        tenant: "default".into(),
        patterns: vec!["invoice.*".into()],
        rate: 10.0,
        burst: 5.0,
        concurrency: 2,
        created: Some(1.0),
        deleted: None,
        secrets: [SECRET.to_owned()].into(),
    });
    evidence.emitted.push(Emitted {
        id: Some(event),
        tenant: "default".into(),
        event_type: "invoice.paid".into(),
        body: BODY.into(),
        ending: Ending::Committed(9.0),
    });
    evidence.events.insert(event, BODY.into());
    let delivered = Delivery {
        status: "delivered".into(),
        reason: None,
        finished: Some(11.1),
    };
    evidence.deliveries.insert((event, 1), delivered);
    evidence.requests.push(seen(event, BODY, 10.0, 10.1));
    evidence.requests.push(Seen {
        accepted: true,
        ..seen(event, BODY, 11.0, 11.1)
    });
    evidence.freezes.push(frozen(40.0, 50.0, 39.5));
    (evidence, event)
}

fn frozen(from: f64, to: f64, beat: f64) -> Freeze {
    let span = Span { from, to };
    Freeze { span, beat }
}

/// The rules that found something.
fn broken(evidence: &Evidence) -> Vec<&'static str> {
    let findings = audit::audit(evidence);
    let broken = findings.iter().filter(|f| !f.violations.is_empty());
    broken.map(|f| f.rule).collect()
}

#[track_caller]
fn assert_broken(evidence: &Evidence, word: &str) {
    let broken = broken(evidence);
    assert!(
        broken.iter().any(|rule| rule.contains(word)),
        "{word} is not among {broken:?}"
    );
}

/// Adds events with one request each at these times, open for `open` seconds.
fn send(evidence: &mut Evidence, times: impl IntoIterator<Item = f64>, open: f64) {
    for at in times {
        let event = Uuid::new_v4();
        let body = format!("{{\"n\":\"{event}\"}}");
        evidence.requests.push(seen(event, &body, at, at + open));
        evidence.events.insert(event, body);
    }
}

#[test]
fn a_sound_run_has_no_violation() {
    assert_eq!(broken(&sound().0), [""; 0]);
}

#[test]
fn a_missing_delivery_is_found() {
    let (mut evidence, event) = sound();
    evidence.deliveries.clear();
    assert_broken(&evidence, "has a delivery");
    // Not for one who subscribes to something else, or was created or deleted in between.
    for change in [
        (|e| e.patterns = vec!["user.*".into()]) as fn(&mut Endpoint),
        |e| e.tenant = "other".into(),
        |e| e.created = Some(9.5),
        |e| e.created = None,
        |e| e.deleted = Some(9.5),
    ] {
        let mut other = evidence.clone();
        change(&mut other.endpoints[0]);
        assert_eq!(audit::audit(&other)[0].violations, [""; 0]);
    }
    // Fan-out was before the deletion: another delivery had ended by then.
    evidence.endpoints[0].deleted = Some(20.0);
    let other = Delivery {
        status: "rejected".into(),
        reason: Some("answer 400".into()),
        finished: Some(15.0),
    };
    evidence.deliveries.insert((event, 2), other);
    assert_broken(&evidence, "has a delivery");
}

#[test]
fn an_end_without_a_reason_is_found() {
    let (mut evidence, event) = sound();
    for (status, reason) in [("pending", None), ("expired", Some(String::new()))] {
        let delivery = evidence.deliveries.get_mut(&(event, 1)).unwrap();
        (delivery.status, delivery.reason) = (status.into(), reason);
        assert_broken(&evidence, "with a reason");
    }
}

#[test]
fn a_delivery_that_nobody_accepted_is_found() {
    let (mut evidence, _) = sound();
    evidence.requests[1].accepted = false;
    assert_broken(&evidence, "answered with a 2xx");
}

#[test]
fn a_lost_event_and_one_that_should_not_be_are_found() {
    let (mut evidence, _) = sound();
    evidence.emitted[0].ending = Ending::RolledBack;
    assert_broken(&evidence, "rolled-back");
    // By its bytes, where the answer to the emit was lost.
    evidence.emitted[0].id = None;
    evidence.events.clear();
    assert_broken(&evidence, "rolled-back");
    let (mut evidence, event) = sound();
    evidence.events.remove(&event);
    assert_broken(&evidence, "is in the database");
    assert_broken(&evidence, "bytes");
    evidence.emitted[0].ending = Ending::Unknown;
    assert!(!broken(&evidence).contains(&"a committed event is in the database"));
}

#[test]
fn a_request_after_the_delivery_is_found() {
    let (mut evidence, event) = sound();
    evidence.requests.push(seen(event, BODY, 12.0, 12.1));
    assert_broken(&evidence, "never sent again");
    evidence.replayed.insert((event, 1));
    assert_eq!(broken(&evidence), [""; 0]);
}

#[test]
fn a_late_report_may_cross_the_successors_request() {
    let at = |reported: f64, again: f64| {
        let (mut evidence, event) = sound();
        let delivery = evidence.deliveries.get_mut(&(event, 1)).unwrap();
        delivery.finished = Some(reported);
        evidence
            .requests
            .push(seen(event, BODY, again, again + 0.1));
        broken(&evidence)
    };
    // Reported when others may have it already, and sent within the second that takes effect in; later; and reported at once.
    assert_eq!(at(17.0, 18.0), [""; 0]);
    assert_eq!(at(17.0, 21.0), ["what was delivered was never sent again"]);
    assert_eq!(at(11.6, 12.6), ["what was delivered was never sent again"]);
}

#[test]
fn overlapping_requests_are_found() {
    let (mut evidence, _) = sound();
    evidence.requests[0].finished = Some(11.5);
    assert_broken(&evidence, "overlapped");
    evidence.requests[0].finished = None;
    assert_broken(&evidence, "overlapped");
}

#[test]
fn only_the_requests_of_a_frozen_worker_are_excused() {
    // Open when the worker froze; the second comes after a lease.
    let with = |first: f64, second: f64, freeze: Freeze| {
        let (mut evidence, event) = sound();
        evidence.requests.truncate(0);
        evidence.deliveries.clear();
        evidence.emitted.clear();
        evidence.requests.push(seen(event, BODY, first, 60.0));
        evidence
            .requests
            .push(seen(event, BODY, second, second + 0.1));
        evidence.freezes = vec![freeze];
        broken(&evidence)
    };
    let long = frozen(40.0, 50.0, 39.5);
    assert_eq!(with(39.0, 46.0, long), [""; 0]);
    // One that could not beat before it froze is taken for dead the sooner.
    assert_eq!(with(39.0, 43.0, frozen(40.0, 50.0, 36.5)), [""; 0]);
    // Before the lease was over, sent by somebody else, and frozen too briefly.
    let overlapped = "no two requests of a delivery overlapped";
    assert!(with(39.0, 43.0, long).contains(&overlapped));
    assert!(with(41.0, 46.0, long).contains(&overlapped));
    let brief = frozen(40.0, 42.0, 39.5);
    assert!(with(39.0, 46.0, brief).contains(&overlapped));
}

#[test]
fn a_pace_exceeded_in_any_window_is_found() {
    // A burst, then the rate, for a minute.
    let (mut evidence, _) = sound();
    send(&mut evidence, [20.0; 5], 0.001);
    send(
        &mut evidence,
        (1..200).map(|n| 20.0 + f64::from(n) / 10.0),
        0.001,
    );
    evidence.endpoints[0].concurrency = 1000;
    assert_eq!(broken(&evidence), [""; 0]);
    // A burst that comes again, as after a take-over with a full bucket.
    send(&mut evidence, [40.0; 10], 0.001);
    assert_broken(&evidence, "pace");
    // A little too fast, for long.
    let (mut evidence, _) = sound();
    send(
        &mut evidence,
        (0..600).map(|n| 20.0 + f64::from(n) / 11.0),
        0.001,
    );
    assert_broken(&evidence, "pace");
}

#[test]
fn too_many_open_requests_are_found() {
    let (mut evidence, _) = sound();
    send(&mut evidence, [20.0, 20.5, 21.1, 21.6], 1.0);
    assert_eq!(broken(&evidence), [""; 0]);
    send(&mut evidence, [30.0, 30.3, 30.6], 1.0);
    assert_broken(&evidence, "concurrency");
}

#[test]
fn a_request_without_end_is_found() {
    let (mut evidence, _) = sound();
    send(&mut evidence, [20.0], 6.0);
    assert_broken(&evidence, "time-out");
}

#[test]
fn a_request_to_a_stopped_endpoint_is_found() {
    for (from, to, found) in [
        (10.5, f64::INFINITY, false),
        (5.0, 60.0, true),
        (5.0, 9.5, false),
    ] {
        let (mut evidence, _) = sound();
        evidence.stopped.push(Stopped {
            path: PATH.into(),
            how: "paused",
            span: Span { from, to },
        });
        assert_eq!(!broken(&evidence).is_empty(), found, "{from} to {to}");
    }
}

#[test]
fn other_bytes_and_signatures_are_found() {
    let (mut evidence, _) = sound();
    evidence.requests[0].body = br#"{"n": 1}"#.to_vec();
    assert_broken(&evidence, "bytes");
    assert_broken(&evidence, "signature");
    let (mut evidence, _) = sound();
    evidence.endpoints[0].secrets = ["whsec_other".to_owned()].into();
    assert_broken(&evidence, "signature");
    let (mut evidence, _) = sound();
    evidence.requests[0].timestamp = "101".into();
    assert_broken(&evidence, "signature");
}
