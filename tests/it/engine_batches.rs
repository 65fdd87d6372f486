//! A batch is judged in the order of its attempts.

use crate::fixtures::engine::{Attempt, count};
use crate::fixtures::lane::Lane;

/// Statuses from a pattern such as `9F S 3F`; `R` is a 429.
fn statuses(pattern: &str) -> Vec<i32> {
    let mut all = Vec::new();
    for part in pattern.split_whitespace() {
        let (n, kind) = part.split_at(part.len() - 1);
        let status = match kind {
            "S" => 200,
            "R" => 429,
            _ => 500,
        };
        all.extend(vec![status; n.parse().unwrap_or(1)]);
    }
    all
}

async fn after(policy: &str, before: usize, pattern: &str) -> (Lane, i32, i32) {
    let lane = Lane::new(policy).await;
    if before > 0 {
        lane.fail(before).await;
    }
    lane.answers(&statuses(pattern)).await;
    let (failures, rung) = (lane.failures().await, lane.rung().await);
    (lane, failures, rung)
}

#[tokio::test]
async fn g14_failures_after_the_last_success_are_added_to_nothing() {
    for (before, pattern, failures) in [
        (0, "9F S 3F", 3),
        (0, "12F S", 0),
        (5, "3F", 8),
        (5, "9F S 3F", 3),
        (5, "S", 0),
        (5, "S S 1F S 2F", 2),
        (0, "2F S 3F S", 0),
        (4, "R R R", 4),
        (4, "2F R 2F", 8),
        (4, "S R", 0),
        (4, "R S R 1F R", 1),
    ] {
        let (lane, found, _) = after("patient", before, pattern).await;
        assert_eq!(found, failures, "{before} and {pattern}");
        let since = lane
            .engine
            .state::<bool>(lane.endpoint, "failing_since is null")
            .await;
        assert_eq!(since, failures == 0, "{before} and {pattern}");
    }
}

#[tokio::test]
async fn g14_a_success_in_a_batch_begins_a_new_streak_at_rung_1() {
    // 12 before: rung 1 fired. Then a success and 12 more: 12 again, but another streak.
    let (lane, failures, rung) = after("brisk", 12, "S 12F").await;
    assert_eq!((failures, rung), (12, 1));
    assert_eq!(lane.alerts().await, ["endpoint_paused", "endpoint_paused"]);
    assert_eq!(lane.until("ladder_paused_until").await, Some(3600));
    // One rung only, whatever the count.
    let (lane, failures, rung) = after("brisk", 12, "S 35F").await;
    assert_eq!((failures, rung), (35, 1));
    assert_eq!(lane.until("ladder_paused_until").await, Some(3600));
    // Below the first rung: no pause is left.
    let (lane, failures, rung) = after("brisk", 12, "S 3F").await;
    assert_eq!((failures, rung), (3, 0));
    assert_eq!(lane.until("ladder_paused_until").await, None);
    assert_eq!(lane.alerts().await, ["endpoint_paused"]);
}

#[tokio::test]
async fn g14_the_time_of_a_streak_is_that_of_its_first_failure() {
    let lane = Lane::new("brisk").await;
    let events = lane.owe(4).await;
    let batch: Vec<Attempt> = [(500, 9000), (200, 6000), (500, 5000), (500, 1000)]
        .iter()
        .zip(&events)
        .map(|((status, ago), event)| lane.attempt(*event, *status).ago(*ago))
        .collect();
    lane.report(&batch).await;
    assert_eq!(lane.until("failing_since").await, Some(-5));
    lane.fail(1).await;
    assert_eq!(lane.until("failing_since").await, Some(-5));
}

#[tokio::test]
async fn g14_the_order_is_that_of_seq_not_of_the_array() {
    let lane = Lane::new("brisk").await;
    let events = lane.owe(5).await;
    let mut batch: Vec<Attempt> = [500, 500, 200, 500, 500]
        .iter()
        .zip(&events)
        .map(|(status, event)| lane.attempt(*event, *status))
        .collect();
    batch.swap(2, 4);
    batch.reverse();
    lane.report(&batch).await;
    assert_eq!(lane.failures().await, 2);
}

#[tokio::test]
async fn g14_a_429_is_no_failure_and_no_retry() {
    let lane = Lane::new("brisk").await;
    lane.fail(2).await;
    let event = lane.owe(1).await[0];
    for number in 1..=12 {
        lane.report(&[lane.attempt(event, 429).number(number).wait(5.0)])
            .await;
    }
    assert!(
        lane.owed::<bool>(
            event,
            "attempts = 12 and failures = 0 and rate_limited = 12 and last_http_status = 429"
        )
        .await
    );
    assert_eq!((lane.failures().await, lane.rung().await), (2, 0));
    // Due when the pause ends, not later.
    assert!(lane.owed::<bool>(event, "due_at <= postrider.now()").await);
    lane.report(&[lane.attempt(event, 500).number(13)]).await;
    lane.report(&[lane.attempt(event, 500).number(14)]).await;
    assert!(lane.owed::<bool>(event, "failures = 2").await);
    lane.report(&[lane.attempt(event, 200).number(15)]).await;
    assert_eq!(lane.ended(event).await.as_deref(), Some("delivered"));
    assert!(lane.alerts().await.is_empty());
}

#[tokio::test]
async fn g14_endpoints_of_a_batch_are_judged_apart() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let second = e.endpoint("policy => 'brisk', event_types => '{}'").await;
    let events = lane.owe(3).await;
    let others = e
        .emit_many(3, &format!("'a.b', '{{}}', endpoint_id => {second}"))
        .await;
    e.fan_out().await;
    assert_eq!(e.claim(lane.worker, 5).await, [second]);
    let batch = [
        lane.attempt(events[0], 500),
        e.attempt(others[0], second, 500),
        lane.attempt(events[1], 500),
        e.attempt(others[1], second, 200),
        e.attempt(others[2], second, 500),
        lane.attempt(events[2], 500),
    ];
    let verdicts = e.report(lane.worker, &batch).await;
    assert_eq!(verdicts.len(), 2);
    assert_eq!(lane.failures().await, 3);
    assert_eq!(e.state::<i32>(second, "failures").await, 1);
    assert_eq!(count(&e.sql, "postrider.attempts where not stale").await, 6);
}

/// Reports of several sessions at once lose no count and fire each rung once.
#[tokio::test]
async fn g14_parallel_reports_lose_no_count() {
    let lane = Lane::new("brisk").await;
    let events = lane.owe(60).await;
    let mut reports = Vec::new();
    for chunk in events.chunks(10) {
        let batches: Vec<Attempt> = chunk
            .iter()
            .map(|event| lane.attempt(*event, 500))
            .collect();
        let (s, worker) = (lane.engine.session().await, lane.worker);
        reports.push(tokio::spawn(async move {
            for attempt in batches {
                // Held: the others had the endpoint for long; to be reported again.
                while crate::fixtures::engine::report(&s, worker, std::slice::from_ref(&attempt))
                    .await
                    .unwrap()[0]
                    .held
                {}
            }
        }));
    }
    for report in reports {
        report.await.unwrap();
    }
    assert_eq!(lane.failures().await, 60);
    // The first pause began at the tenth; the rest had begun before it and climbs no further.
    assert_eq!(lane.rung().await, 1);
    assert_eq!(lane.alerts().await, ["endpoint_paused"]);
}
