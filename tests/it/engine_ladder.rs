//! The ladder: whatever changes the count, the transition follows, one rung at a time.

use crate::fixtures::engine::{all, run};
use crate::fixtures::lane::Lane;

const HOUR: u64 = 3600;

/// Failures one batch at a time, and what the state then is.
async fn step(lane: &Lane, n: usize, failures: i32, rung: i32, pause: Option<i32>) {
    lane.fail(n).await;
    assert_eq!((lane.failures().await, lane.rung().await), (failures, rung));
    let found = lane.until("ladder_paused_until").await;
    match pause {
        Some(pause) => assert!(
            (pause - 60..=pause).contains(&found.unwrap()),
            "{failures}: {found:?}"
        ),
        None => assert!(found.is_none_or(|s| s <= 0), "{failures}: {found:?}"),
    }
}

#[tokio::test]
async fn g14_brisk_climbs_10_20_30_and_is_disabled_at_40() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    step(&lane, 9, 9, 0, None).await;
    step(&lane, 1, 10, 1, Some(3600)).await;
    assert!(
        e.state::<bool>(lane.endpoint, "next_claim_at >= ladder_paused_until")
            .await
    );
    e.pass(HOUR + 1).await;
    step(&lane, 9, 19, 1, None).await;
    step(&lane, 1, 20, 2, Some(6 * 3600)).await;
    e.pass(6 * HOUR + 1).await;
    step(&lane, 9, 29, 2, None).await;
    step(&lane, 1, 30, 3, Some(86_400)).await;
    e.pass(24 * HOUR + 1).await;
    step(&lane, 9, 39, 3, None).await;
    step(&lane, 1, 40, 4, None).await;
    assert!(
        e.state::<bool>(
            lane.endpoint,
            "disabled_at is not null and next_claim_at is null and reason <> ''"
        )
        .await
    );
    let alerts = [
        "endpoint_paused",
        "endpoint_paused",
        "endpoint_paused",
        "endpoint_disabled",
    ];
    assert_eq!(lane.alerts().await, alerts);
    let messages: Vec<String> =
        all(&e.sql, "select message from postrider.alerts order by id").await;
    assert!(messages[3].contains("enable_endpoint"), "{messages:?}");
    // Nothing fires a second time.
    e.pass(48 * HOUR).await;
    let sql = "update postrider.endpoint_state set failures = 60";
    run(&e.sql, sql).await;
    assert_eq!(lane.alerts().await, alerts);
}

#[tokio::test]
async fn patient_climbs_only_after_ten_minutes_of_failing() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    step(&lane, 25, 25, 0, None).await;
    e.pass(9 * 60).await;
    step(&lane, 1, 26, 0, None).await;
    e.pass(61).await;
    assert_eq!(lane.rung().await, 0, "time alone fires nothing");
    step(&lane, 1, 27, 1, Some(3600)).await;
    // One rung per pause, though the count is past the next.
    step(&lane, 1, 28, 1, Some(3600)).await;
    e.pass(HOUR + 1).await;
    step(&lane, 1, 29, 2, Some(6 * 3600)).await;
    e.pass(6 * HOUR + 1).await;
    step(&lane, 1, 30, 3, Some(86_400)).await;
    assert_eq!(lane.alerts().await, ["endpoint_paused"; 3]);
}

#[tokio::test]
async fn patient_needs_the_count_of_each_rung() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    step(&lane, 1, 1, 0, None).await;
    e.pass(HOUR).await;
    step(&lane, 8, 9, 0, None).await;
    step(&lane, 1, 10, 1, Some(3600)).await;
    e.pass(HOUR + 1).await;
    step(&lane, 9, 19, 1, None).await;
    step(&lane, 1, 20, 2, Some(6 * 3600)).await;
    e.pass(6 * HOUR + 1).await;
    step(&lane, 9, 29, 2, None).await;
    step(&lane, 1, 30, 3, Some(86_400)).await;
}

#[tokio::test]
async fn patient_is_disabled_after_24_h_and_ten_failures() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    step(&lane, 1, 1, 0, None).await;
    e.pass(25 * HOUR).await;
    let disabled = async || {
        e.state::<bool>(lane.endpoint, "disabled_at is not null")
            .await
    };
    step(&lane, 8, 9, 0, None).await;
    assert!(!disabled().await, "nine failures");
    assert!(lane.fail(1).await.stopped);
    assert!(disabled().await);
    assert_eq!(lane.alerts().await, ["endpoint_disabled"]);
    // Ten failures, and not yet a day.
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.fail(9).await;
    e.pass(24 * HOUR - 60).await;
    let verdict = lane.fail(1).await;
    assert!(
        !verdict.stopped && verdict.paused_ms > 3_590_000,
        "rung 1: {verdict:?}"
    );
}

#[tokio::test]
async fn age_disables_on_a_failure_and_not_while_the_ladder_pauses() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.fail(9).await;
    e.pass(23 * HOUR + 3000).await;
    lane.fail(1).await;
    assert_eq!(lane.rung().await, 1);
    e.pass(1200).await;
    let disabled = async || {
        e.state::<bool>(lane.endpoint, "disabled_at is not null")
            .await
    };
    // Past 24 h now, within the pause: counted, no further.
    lane.fail(3).await;
    assert_eq!(lane.failures().await, 13);
    assert!(!disabled().await);
    e.pass(HOUR).await;
    assert!(!disabled().await, "only a failure disables");
    lane.fail(1).await;
    assert!(disabled().await);
    assert_eq!(
        lane.alerts().await,
        ["endpoint_paused", "endpoint_disabled"]
    );
}

#[tokio::test]
async fn answers_begun_before_the_pause_count_but_do_not_climb() {
    let lane = Lane::new("brisk").await;
    step(&lane, 12, 12, 1, Some(3600)).await;
    step(&lane, 10, 22, 1, Some(3600)).await;
    step(&lane, 20, 42, 1, Some(3600)).await;
    assert_eq!(lane.alerts().await, ["endpoint_paused"]);
    lane.engine.pass(HOUR + 1).await;
    step(&lane, 1, 43, 2, Some(6 * 3600)).await;
}

#[tokio::test]
async fn g14_every_failed_attempt_counts_but_a_429() {
    let lane = Lane::new("patient").await;
    let events = lane.owe(4).await;
    lane.report(&[
        lane.attempt(events[0], 404),
        lane.attempt(events[1], 0).failed("address_refused"),
        lane.attempt(events[2], 0).failed("timeout"),
        lane.attempt(events[3], 429),
    ])
    .await;
    assert_eq!(lane.failures().await, 3);
    // Retries too, not deliveries that ended alone.
    lane.report(&[lane.attempt(events[2], 500).number(2)]).await;
    assert_eq!(lane.failures().await, 4);
}
