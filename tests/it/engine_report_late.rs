//! Reports of a worker whose lease has ended.

use uuid::Uuid;

use crate::fixtures::engine::{count, run};
use crate::fixtures::lane::Lane;

/// A lane whose lease has ended, and a worker that owns the endpoint now.
async fn lapsed(n: usize) -> (Lane, Vec<Uuid>, Uuid) {
    let lane = Lane::new("brisk").await;
    let events = lane.owe(n).await;
    let e = &lane.engine;
    let next = e.worker().await;
    let sql = format!(
        "select postrider.heartbeat('{next}', '{{{}}}', '{{0}}')",
        lane.worker
    );
    run(&e.sql, &sql).await;
    assert_eq!(e.claim(next, 10).await, [lane.endpoint]);
    (lane, events, next)
}

#[tokio::test]
async fn a_late_2xx_settles_and_leaves_the_ladder_alone() {
    let (lane, events, next) = lapsed(5).await;
    let e = &lane.engine;
    let failing: Vec<_> = events[..3]
        .iter()
        .map(|event| lane.attempt(*event, 500))
        .collect();
    e.report(next, &failing).await;
    let before: String = e
        .state(
            lane.endpoint,
            "concat_ws(',', failures, failing_since, rung, ladder_paused_until)",
        )
        .await;
    // Whatever its number: the receiver has it.
    let late = [
        lane.attempt(events[0], 200),
        lane.attempt(events[3], 204),
        lane.attempt(events[4], 200).number(7),
    ];
    let verdict = lane.report(&late).await;
    assert!(!verdict.owned);
    for event in [events[0], events[3], events[4]] {
        assert_eq!(lane.ended(event).await.as_deref(), Some("delivered"));
    }
    let after: String = e
        .state(
            lane.endpoint,
            "concat_ws(',', failures, failing_since, rung, ladder_paused_until)",
        )
        .await;
    assert_eq!(after, before);
    // The new owner's own answer for it comes too late, and is kept.
    e.report(next, &[lane.attempt(events[3], 500)]).await;
    assert_eq!(lane.ended(events[3]).await.as_deref(), Some("delivered"));
    assert_eq!(lane.failures().await, 3);
}

#[tokio::test]
async fn any_other_late_answer_is_kept_marked_stale_and_moves_nothing() {
    let (lane, events, next) = lapsed(4).await;
    let e = &lane.engine;
    let state = "concat_ws(',', failures, rung, rate_limited_until, disabled_at, owner, lapses)";
    let before: String = e.state(lane.endpoint, state).await;
    let late = [
        lane.attempt(events[0], 500),
        lane.attempt(events[1], 429).wait(600.0),
        lane.attempt(events[2], 410),
        lane.attempt(events[3], 0).failed("timeout"),
    ];
    assert!(!lane.report(&late).await.owned);
    assert_eq!(e.state::<String>(lane.endpoint, state).await, before);
    assert_eq!(
        count(
            &e.sql,
            "postrider.pending where attempts = 0 and failures = 0"
        )
        .await,
        4
    );
    assert_eq!(count(&e.sql, "postrider.attempts where stale").await, 4);
    assert_eq!(count(&e.sql, "postrider.endpoint_stats").await, 0);
    // The owner's attempt under the same number still counts.
    e.report(next, &[lane.attempt(events[0], 500)]).await;
    assert!(lane.owed::<bool>(events[0], "attempts = 1").await);
}
