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
            (pause - 2..=pause).contains(&found.unwrap()),
            "{failures}: {found:?}"
        ),
        None => assert!(found.is_none_or(|s| s <= 0), "{failures}: {found:?}"),
    }
}

#[tokio::test]
async fn brisk_climbs_10_20_30_and_is_disabled_at_40() {
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
async fn every_failed_attempt_counts_but_a_429() {
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

#[tokio::test]
async fn one_success_ends_the_streak_and_the_ladders_pause() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let events = lane.owe(2).await;
    lane.report(&[lane.attempt(events[0], 429).wait(7200.0)])
        .await;
    lane.fail(10).await;
    run(
        &e.sql,
        &format!(
            "select postrider.pause_endpoint({}, postrider.now() + interval '2 days')",
            lane.endpoint
        ),
    )
    .await;
    let verdict = lane.report(&[lane.attempt(events[1], 200)]).await;
    assert!(!verdict.probing);
    assert_eq!((lane.failures().await, lane.rung().await), (0, 0));
    assert_eq!(lane.until("ladder_paused_until").await, None);
    // Not a person's, and not the endpoint's own.
    assert!((172_700..=172_800).contains(&lane.until("paused_until").await.unwrap()));
    assert!((7100..=7200).contains(&lane.until("rate_limited_until").await.unwrap()));
    assert!(
        e.state::<bool>(
            lane.endpoint,
            "next_claim_at is null or next_claim_at >= paused_until"
        )
        .await
    );
}

#[tokio::test]
async fn the_end_of_the_ladders_pause_is_the_end_of_the_wait() {
    let lane = Lane::new("brisk").await;
    let events = lane.owe(2).await;
    lane.fail(10).await;
    let verdict = lane.report(&[lane.attempt(events[0], 200)]).await;
    assert_eq!(verdict.paused_ms, 0);
    lane.engine.release(lane.worker, lane.endpoint, 0).await;
    assert_eq!(lane.engine.claim(lane.worker, 1).await, [lane.endpoint]);
}

#[tokio::test]
async fn a_success_does_not_enable_a_disabled_endpoint() {
    for how in ["age", "person"] {
        let lane = Lane::new("patient").await;
        let events = lane.owe(2).await;
        lane.report(&[lane.attempt(events[0], 500)]).await;
        if how == "age" {
            lane.once(410).await;
        } else {
            lane.verb("disable_endpoint").await;
        }
        let verdict = lane.report(&[lane.attempt(events[1], 200)]).await;
        assert!(verdict.stopped, "{how}");
        assert_eq!(lane.failures().await, 0);
        let stopped = "disabled_at is not null and next_claim_at is null and reason is not null";
        assert!(
            lane.engine.state::<bool>(lane.endpoint, stopped).await,
            "{how}"
        );
    }
}

#[tokio::test]
async fn after_enabling_only_requests_begun_later_count() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let events = lane.owe(4).await;
    lane.fail(10).await;
    e.pass(60).await;
    lane.verb("enable_endpoint").await;
    assert_eq!((lane.failures().await, lane.rung().await), (0, 0));
    assert_eq!(lane.until("ladder_paused_until").await, None);
    let open: Vec<String> = all(
        &e.sql,
        "select kind from postrider.alerts where dismissed_at is null",
    )
    .await;
    assert!(open.is_empty());
    e.pass(10).await;
    // Begun before: settles its delivery, and is no failure of the endpoint.
    lane.report(&[lane.attempt(events[0], 500).ago(15_000)])
        .await;
    assert_eq!(lane.failures().await, 0);
    assert!(lane.owed::<bool>(events[0], "failures = 1").await);
    let mut slow = lane.attempt(events[1], 500);
    slow.took = 15_000;
    lane.report(&[slow]).await;
    assert_eq!(lane.failures().await, 0, "answered after, begun before");
    lane.report(&[lane.attempt(events[2], 500).ago(5_000)])
        .await;
    assert_eq!(lane.failures().await, 1);
    // Nor does an old success wipe what is failing now.
    lane.report(&[lane.attempt(events[3], 200).ago(20_000)])
        .await;
    assert_eq!(lane.failures().await, 1);
    assert_eq!(lane.ended(events[3]).await.as_deref(), Some("delivered"));
}
