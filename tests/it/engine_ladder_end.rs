//! What ends a streak: one success, or a person.

use crate::fixtures::engine::{all, run};
use crate::fixtures::lane::Lane;

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
