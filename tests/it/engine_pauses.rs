//! A 429 stops the whole endpoint until the time it asked for.

use crate::fixtures::engine::{count, run};
use crate::fixtures::lane::Lane;

#[tokio::test]
async fn the_pause_is_what_was_asked_for_between_floor_and_cap() {
    for policy in ["patient", "brisk"] {
        for (wait, seconds) in [
            (None, 60),
            (Some(7.0), 7),
            (Some(0.0), 1),
            (Some(0.2), 1),
            (Some(86_400.0), 86_400),
            (Some(86_401.0), 86_400),
            (Some(31_536_000.0), 86_400),
            (Some(9.0e12), 86_400),
        ] {
            let lane = Lane::new(policy).await;
            let event = lane.owe(1).await[0];
            let mut attempt = lane.attempt(event, 429);
            if let Some(wait) = wait {
                attempt = attempt.wait(wait);
            }
            let verdict = lane.report(&[attempt]).await;
            let from_answer = format!(
                "round(extract(epoch from rate_limited_until - (select max(started_at + duration_ms * interval '1 ms')
                     from postrider.attempts where event_id = '{event}')))::int"
            );
            let pause: i32 = lane.engine.state(lane.endpoint, &from_answer).await;
            assert_eq!(pause, seconds, "{policy} {wait:?}");
            let ms = i64::from(seconds) * 1000;
            assert!(
                (ms - 20_000..=ms).contains(&verdict.paused_ms),
                "{wait:?}: {verdict:?}"
            );
            assert_eq!(lane.failures().await, 0);
        }
    }
}

#[tokio::test]
async fn it_is_never_shortened_by_a_later_answer() {
    let lane = Lane::new("patient").await;
    let events = lane.owe(6).await;
    for (event, (wait, until)) in
        events
            .iter()
            .zip([(5.0, 5), (30.0, 30), (10.0, 30), (5.0, 30), (31.0, 31)])
    {
        lane.report(&[lane.attempt(*event, 429).wait(wait)]).await;
        let found = lane.until("rate_limited_until").await.unwrap();
        assert!((until - 4..=until).contains(&found), "{wait}: {found}");
    }
    // Nor by a success, a failure, or a person.
    lane.report(&[lane.attempt(events[5], 200)]).await;
    lane.fail(1).await;
    lane.verb("resume_endpoint").await;
    lane.verb("enable_endpoint").await;
    assert!(lane.until("rate_limited_until").await.unwrap() >= 25);
    // And in one batch the longest counts.
    let lane = Lane::new("patient").await;
    let events = lane.owe(5).await;
    let batch: Vec<_> = std::iter::zip(&events, [5.0, 30.0, 10.0, 60.0, 5.0])
        .map(|(event, wait)| {
            if wait < 60.0 {
                lane.attempt(*event, 429).wait(wait)
            } else {
                lane.attempt(*event, 500)
            }
        })
        .collect();
    lane.report(&batch).await;
    assert_eq!(lane.until("rate_limited_until").await, Some(30));
}

#[tokio::test]
async fn it_counts_from_the_answer() {
    let lane = Lane::new("patient").await;
    let events = lane.owe(2).await;
    lane.report(&[lane.attempt(events[0], 429).wait(30.0).ago(20_000)])
        .await;
    assert_eq!(lane.until("rate_limited_until").await, Some(10));
    // One that is over already pauses nothing.
    let lane = Lane::new("patient").await;
    let event = lane.owe(1).await[0];
    let verdict = lane
        .report(&[lane.attempt(event, 429).wait(5.0).ago(20_000)])
        .await;
    assert_eq!(verdict.paused_ms, 0);
    assert!(
        lane.until("rate_limited_until")
            .await
            .is_none_or(|s| s <= 0)
    );
}

#[tokio::test]
async fn retry_after_on_a_503_pauses_and_counts_as_a_failure() {
    for policy in ["patient", "brisk"] {
        let lane = Lane::new(policy).await;
        let events = lane.owe(3).await;
        lane.report(&[lane.attempt(events[0], 503)]).await;
        assert_eq!(
            lane.until("rate_limited_until").await,
            None,
            "none asked for"
        );
        lane.report(&[lane.attempt(events[1], 503).wait(40.0)])
            .await;
        assert_eq!(lane.until("rate_limited_until").await, Some(40), "{policy}");
        assert_eq!(lane.failures().await, 2);
        assert!(
            lane.owed::<bool>(events[1], "failures = 1 and rate_limited = 0")
                .await
        );
        // No other status has that meaning.
        let lane = Lane::new(policy).await;
        let events = lane.owe(3).await;
        for (event, status) in std::iter::zip(&events, [500, 502, 200]) {
            lane.report(&[lane.attempt(*event, status).wait(40.0)])
                .await;
        }
        assert_eq!(lane.until("rate_limited_until").await, None);
    }
}

#[tokio::test]
async fn the_whole_endpoint_waits_for_it_also_with_another_owner() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(6).await;
    lane.report(&[lane.attempt(events[0], 429).wait(30.0)])
        .await;
    assert!(
        e.state::<bool>(lane.endpoint, "next_claim_at = rate_limited_until")
            .await
    );
    assert!(
        e.fetch(lane.worker, &[lane.endpoint], 10, &[], 100_000)
            .await
            .is_empty()
    );
    e.release(lane.worker, lane.endpoint, 0).await;
    let next = e.worker().await;
    assert!(e.claim(next, 10).await.is_empty());
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    assert!(
        e.claim(next, 10).await.is_empty(),
        "a new event ended the pause"
    );
    e.pass(31).await;
    assert_eq!(e.claim(next, 10).await, [lane.endpoint]);
    let found = e.fetch(next, &[lane.endpoint], 10, &[], 100_000).await;
    assert_eq!(found.len(), 7);
    assert_eq!(
        (found[0].event, found[0].number),
        (events[0], 2),
        "oldest first, the number goes on"
    );
}

#[tokio::test]
async fn time_to_live_runs_during_a_pause() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(3).await;
    run(
        &e.sql,
        &format!("select postrider.pause_endpoint({})", lane.endpoint),
    )
    .await;
    e.pass(72 * 3600 + 3600).await;
    let young = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    run(&e.sql, "select postrider.maintain()").await;
    for event in events {
        assert_eq!(lane.ended(event).await.as_deref(), Some("expired"));
    }
    assert!(lane.ended(young).await.is_none());
    assert_eq!(count(&e.sql, "postrider.pending").await, 1);
}
