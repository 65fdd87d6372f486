//! Retries: how many, how late, and what they count.

use uuid::Uuid;

use crate::fixtures::engine::count;
use crate::fixtures::lane::Lane;

/// Seconds from now until the delivery is due, after each of its failures.
async fn delays(lane: &Lane, event: Uuid) -> Vec<f64> {
    let mut delays = Vec::new();
    let mut number = 0;
    while lane.ended(event).await.is_none() {
        number += 1;
        lane.report(&[lane.attempt(event, 500).number(number)])
            .await;
        if lane.ended(event).await.is_none() {
            delays.push(
                lane.owed::<f64>(
                    event,
                    "extract(epoch from due_at - postrider.now())::float8",
                )
                .await,
            );
        }
        lane.verb("enable_endpoint").await;
    }
    assert_eq!(lane.ended(event).await.as_deref(), Some("exhausted"));
    delays
}

#[tokio::test]
async fn brisk_tries_three_times_after_exactly_30_s_and_2_min() {
    let lane = Lane::new("brisk").await;
    let event = lane.owe(1).await[0];
    let found = delays(&lane, event).await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        (29.0..=30.0).contains(&found[0]) && (119.0..=120.0).contains(&found[1]),
        "{found:?}"
    );
    let e = &lane.engine;
    let ended = "postrider.finished where attempts = 3 and failures = 3 and last_http_status = 500 and reason <> ''";
    assert_eq!(count(&e.sql, ended).await, 1);
}

#[tokio::test]
async fn patient_tries_ten_times_within_doubling_bounds_fully_jittered() {
    let lane = Lane::new("patient").await;
    let mut longest = [0.0_f64; 9];
    let mut shortest = [f64::MAX; 9];
    for event in lane.owe(12).await {
        let found = delays(&lane, event).await;
        assert_eq!(found.len(), 9, "ten attempts, nine waits: {found:?}");
        for (i, delay) in found.into_iter().enumerate() {
            let bound = (30.0 * f64::powi(2.0, i32::try_from(i).unwrap())).min(21_600.0);
            assert!(
                (-1.0..=bound).contains(&delay),
                "wait {i}: {delay} of {bound}"
            );
            longest[i] = longest[i].max(delay / bound);
            shortest[i] = shortest[i].min(delay / bound);
        }
    }
    // Of twelve draws some are long and some are short, or it is no full jitter (wrong once in 10^4).
    let spread = std::iter::zip(longest, shortest)
        .filter(|(l, s)| l > &0.5 && s < &0.5)
        .count();
    assert!(spread >= 8, "{longest:?} {shortest:?}");
}

#[tokio::test]
async fn the_limit_counts_failures_and_not_429s() {
    let lane = Lane::new("brisk").await;
    let event = lane.owe(1).await[0];
    for (number, status) in (1..).zip([500, 429, 429, 500, 429]) {
        lane.report(&[lane.attempt(event, status).number(number)])
            .await;
    }
    assert!(
        lane.owed::<bool>(event, "attempts = 5 and failures = 2")
            .await
    );
    lane.report(&[lane.attempt(event, 500).number(6)]).await;
    assert_eq!(lane.ended(event).await.as_deref(), Some("exhausted"));
    // A replay begins anew.
    let sql = format!(
        "select postrider.replay_delivery('{event}', {})",
        lane.endpoint
    );
    crate::fixtures::engine::run(&lane.engine.sql, &sql).await;
    lane.report(&[lane.attempt(event, 500).run(2)]).await;
    assert!(
        lane.owed::<bool>(event, "attempts = 1 and failures = 1 and run = 2")
            .await
    );
}
