//! The two policies: every value, and what each answer makes of a delivery.

use crate::fixtures::engine::{all, one};
use crate::fixtures::lane::Lane;

#[tokio::test]
async fn the_presets_are_those_of_the_documents() {
    let lane = Lane::new("patient").await;
    let sql = "select concat_ws('|', name, rate, burst, concurrency, connect_timeout, request_timeout, max_attempts, backoff_base,
                   backoff_cap, backoff_jitter, time_to_live, coalesce(disable_after::text, '-'), disable_after_failures,
                   gone_disables, pause_default, pause_min, pause_max, pause_on_503, when_disabled)
               from postrider.policies order by name desc";
    assert_eq!(
        all::<String>(&lane.engine.sql, sql).await,
        [
            "patient|10|10|5|00:00:03|00:00:10|10|00:00:30|06:00:00|full|72:00:00|24:00:00|10|t|00:01:00|00:00:01|24:00:00|t|wait",
            "brisk|10|10|5|00:00:05|00:00:15|3|00:00:30|00:02:00|none|72:00:00|-|1|f|00:01:00|00:00:01|24:00:00|t|skip",
        ]
    );
    let sql = "select concat_ws('|', policy, rung, failures, extract(epoch from failing_for)::int, coalesce((extract(epoch from pause)::int)::text, 'disable'))
               from postrider.policy_rungs order by policy desc, rung";
    assert_eq!(
        all::<String>(&lane.engine.sql, sql).await,
        [
            "patient|1|10|600|3600",
            "patient|2|20|600|21600",
            "patient|3|30|600|86400",
            "brisk|1|10|0|3600",
            "brisk|2|20|0|21600",
            "brisk|3|30|0|86400",
            "brisk|4|40|0|disable",
        ]
    );
    lane.engine
        .endpoint("description => 'patient by default'")
        .await;
    let default = "select policy from postrider.endpoints order by id desc limit 1";
    assert_eq!(one::<String>(&lane.engine.sql, default).await, "patient");
}

/// What one answer makes of a fresh delivery.
async fn judged(lane: &Lane, status: i32, code: Option<&'static str>) -> String {
    let event = lane.owe(1).await[0];
    // The request began after whatever was done to the endpoint before.
    lane.engine.pass(1).await;
    let mut attempt = lane.attempt(event, status);
    if let Some(code) = code {
        attempt = attempt.failed(code);
    }
    let failures = lane.failures().await;
    lane.report(&[attempt]).await;
    let counted = lane.failures().await - failures;
    let outcome = match lane.ended(event).await {
        Some(ended) => ended,
        None if lane
            .owed::<bool>(event, "rate_limited = 1 and failures = 0")
            .await =>
        {
            "pause".into()
        }
        None => "retry".into(),
    };
    // Only a 2xx and a 429 are no failures.
    let is_failure = !matches!(status, 200..=299 | 429) || code.is_some();
    assert!(
        if is_failure {
            counted == 1
        } else {
            counted <= 0
        },
        "{status} {code:?}: {counted}"
    );
    lane.verb("enable_endpoint").await;
    outcome
}

const NO_ANSWER: [&str; 6] = ["refused", "reset", "timeout", "unparsable", "dns", "tls"];

#[tokio::test]
async fn patient_retries_what_may_pass_and_nothing_else() {
    let lane = Lane::new("patient").await;
    let mut wrong = Vec::new();
    for (outcome, statuses) in [
        ("delivered", vec![200, 201, 204, 299]),
        (
            "rejected",
            vec![
                300, 304, 400, 401, 403, 404, 409, 410, 413, 421, 499, 999, 100, 101, 600,
            ],
        ),
        ("retry", vec![408, 425, 500, 502, 503, 504, 599]),
        ("pause", vec![429]),
    ] {
        for status in statuses {
            let found = judged(&lane, status, None).await;
            if found != outcome {
                wrong.push(format!("{status}: {found}, not {outcome}"));
            }
        }
    }
    for code in NO_ANSWER {
        let found = judged(&lane, 0, Some(code)).await;
        if found != "retry" {
            wrong.push(format!("{code}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(judged(&lane, 0, Some("address_refused")).await, "rejected");
}

#[tokio::test]
async fn brisk_retries_everything_but_a_2xx() {
    let lane = Lane::new("brisk").await;
    let mut wrong = Vec::new();
    for (outcome, statuses) in [
        ("delivered", vec![200, 201, 204, 299]),
        (
            "retry",
            vec![
                300, 304, 400, 401, 403, 404, 408, 409, 410, 413, 421, 425, 499, 500, 502, 503,
                504, 599, 999,
            ],
        ),
        ("pause", vec![429]),
    ] {
        for status in statuses {
            let found = judged(&lane, status, None).await;
            if found != outcome {
                wrong.push(format!("{status}: {found}, not {outcome}"));
            }
        }
    }
    for code in NO_ANSWER {
        let found = judged(&lane, 0, Some(code)).await;
        if found != "retry" {
            wrong.push(format!("{code}: {found}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(judged(&lane, 0, Some("address_refused")).await, "rejected");
}

#[tokio::test]
async fn a_410_disables_under_patient_and_counts_under_brisk() {
    let patient = Lane::new("patient").await;
    let verdict = patient.once(410).await;
    assert!(verdict.stopped);
    assert!(
        patient
            .engine
            .state::<bool>(
                patient.endpoint,
                "disabled_at is not null and next_claim_at is null"
            )
            .await
    );
    assert_eq!(patient.alerts().await, ["endpoint_disabled"]);
    let brisk = Lane::new("brisk").await;
    assert!(!brisk.once(410).await.stopped);
    assert_eq!(brisk.failures().await, 1);
    assert!(brisk.alerts().await.is_empty());
}

#[tokio::test]
async fn every_end_has_a_reason_of_its_own() {
    let lane = Lane::new("patient").await;
    for (status, code) in [
        (404, None),
        (0, Some("address_refused")),
        (0, Some("bad_request")),
        (0, Some("unreportable")),
    ] {
        assert_eq!(judged(&lane, status, code).await, "rejected");
    }
    let sql = "select count(distinct reason) = count(*) and bool_and(reason <> '') from postrider.finished";
    assert!(one::<bool>(&lane.engine.sql, sql).await);
    // No retry outlives its time to live.
    let e = &lane.engine;
    let event = lane.owe(1).await[0];
    e.pass(72 * 3600 - 1).await;
    lane.report(&[lane.attempt(event, 500)]).await;
    assert!(lane.owed::<bool>(event, "due_at <= expires_at").await);
}
