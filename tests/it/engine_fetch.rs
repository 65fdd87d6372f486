//! fetch_deliveries: what the owner of an endpoint may start, bounded, with the settings of now.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::fixtures::engine::{Fetched, count, one, run};
use crate::fixtures::lane::Lane;

const PLENTY: i64 = 1_000_000;

#[tokio::test]
async fn only_the_owner_is_given_settings_and_deliveries() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(2).await;
    let peer = e.worker().await;
    for other in [peer, Uuid::new_v4()] {
        assert!(
            e.fetch(other, &[lane.endpoint], 10, &[], PLENTY)
                .await
                .is_empty()
        );
        assert!(e.settings(other, lane.endpoint).await.is_null());
    }
    let found = e
        .fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
        .await;
    assert_eq!(found.iter().map(|f| f.event).collect::<Vec<_>>(), events);
    assert!(
        found
            .iter()
            .all(|f| f.run == 1 && f.number == 1 && f.body == "{}")
    );
    assert!(
        found
            .iter()
            .all(|f| (259_100_000..=259_200_000).contains(&f.expires_in_ms))
    );
    // Nothing is marked by it.
    let again = e
        .fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
        .await;
    let keys = |list: &[Fetched]| list.iter().map(|f| (f.event, f.number)).collect::<Vec<_>>();
    assert_eq!(keys(&again), keys(&found));
    assert!(
        lane.owed::<bool>(events[0], "attempts = 0 and due_at <= postrider.now()")
            .await
    );
}

#[tokio::test]
async fn what_is_in_hand_is_left_out_by_pair() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(4).await;
    let other = e.endpoint("event_types => '{}'").await;
    let hand = [
        (events[0], lane.endpoint),
        (events[2], lane.endpoint),
        (events[1], other),
    ];
    let found = e
        .fetch(lane.worker, &[lane.endpoint], 10, &hand, PLENTY)
        .await;
    assert_eq!(
        found.iter().map(|f| f.event).collect::<Vec<_>>(),
        [events[1], events[3]]
    );
    // The limit counts what is given, not what is skipped.
    let found = e
        .fetch(lane.worker, &[lane.endpoint], 1, &hand, PLENTY)
        .await;
    assert_eq!(
        found.iter().map(|f| f.event).collect::<Vec<_>>(),
        [events[1]]
    );
}

#[tokio::test]
async fn bodies_are_bounded_but_one_too_large_passes_alone() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let body = async |size: usize| {
        let args = format!(
            "'a.b', to_jsonb(repeat('é', {})), endpoint_id => {}",
            (size - 2) / 2,
            lane.endpoint
        );
        e.emit(&args).await
    };
    let large = body(5000).await;
    let mut small = Vec::new();
    for _ in 0..4 {
        small.push(body(1000).await);
    }
    lane.owe(0).await;
    let fetch = async |skip: &[(Uuid, i64)], bytes: i64| -> Vec<Uuid> {
        let found = e
            .fetch(lane.worker, &[lane.endpoint], 10, skip, bytes)
            .await;
        found.iter().map(|f| f.event).collect()
    };
    assert_eq!(fetch(&[], 2500).await, [large]);
    assert_eq!(fetch(&[], 1).await, [large]);
    let hand = [(large, lane.endpoint)];
    assert_eq!(fetch(&hand, 2500).await, small[..2]);
    assert_eq!(fetch(&hand, 4000).await, small);
    assert_eq!(fetch(&[], 6000).await, [large, small[0]]);
}

#[tokio::test]
async fn many_endpoints_share_the_bytes_in_turns() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let second = e.endpoint("event_types => '{}'").await;
    for endpoint in [lane.endpoint, second] {
        e.emit_many(
            5,
            &format!("'a.b', to_jsonb(repeat('x', 998)), endpoint_id => {endpoint}"),
        )
        .await;
    }
    lane.owe(0).await;
    let found = e
        .fetch(lane.worker, &[lane.endpoint, second], 5, &[], 4000)
        .await;
    let of = |endpoint| found.iter().filter(|f| f.endpoint == endpoint).count();
    assert_eq!((of(lane.endpoint), of(second)), (2, 2));
    let sql = format!(
        "select count(*) filter (where settings is not null) from postrider.fetch_deliveries('{}', '{{{},{second}}}', '{{1,3}}', '{{}}', '{{}}', 100000)",
        lane.worker, lane.endpoint
    );
    assert_eq!(one::<i64>(&e.sql, &sql).await, 2);
    let sql = sql.replace(
        "count(*) filter (where settings is not null)",
        "count(event_id)",
    );
    assert_eq!(one::<i64>(&e.sql, &sql).await, 4);
}

#[tokio::test]
async fn oldest_due_first() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let mut expected = Vec::new();
    for minutes in [1, 3, 2] {
        let args =
            format!("'a.b', '{{}}', deliver_at => postrider.now() + interval '{minutes} min'");
        expected.push(e.emit(&args).await);
    }
    expected.swap(1, 2);
    e.fan_out().await;
    e.pass(200).await;
    lane.owe(0).await;
    let found = e
        .fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
        .await;
    assert_eq!(found.iter().map(|f| f.event).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn what_is_past_its_time_to_live_ends_as_expired_when_met() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let old = lane.owe(2).await;
    e.pass(72 * 3600 - 60).await;
    assert_eq!(
        e.fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
            .await
            .len(),
        2
    );
    let young = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    e.pass(120).await;
    let found = e
        .fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
        .await;
    assert_eq!(found.iter().map(|f| f.event).collect::<Vec<_>>(), [young]);
    for event in old {
        assert_eq!(lane.ended(event).await.as_deref(), Some("expired"));
    }
    assert_eq!(
        count(&e.sql, "postrider.finished where reason is not null").await,
        2
    );
}

#[tokio::test]
async fn nothing_is_given_while_paused_or_disabled() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let given = async || {
        e.fetch(lane.worker, &[lane.endpoint], 10, &[], PLENTY)
            .await
            .len()
    };
    for (stop, go) in [
        ("pause_endpoint", "resume_endpoint"),
        ("disable_endpoint", "enable_endpoint"),
    ] {
        lane.verb(stop).await;
        assert_eq!(given().await, 0, "{stop}");
        lane.verb(go).await;
        assert_eq!(given().await, 1, "{go}");
    }
}

/// Ids that are newer than the statistics of events look like a single row, and were compared each with each.
#[tokio::test]
async fn events_newer_than_their_tables_statistics_are_looked_up_by_id() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(300).await;
    run(
        &e.sql,
        "analyze postrider.events; delete from postrider.pending",
    )
    .await;
    lane.owe(6000).await;
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        let given = e
            .fetch(lane.worker, &[lane.endpoint], 6000, &[], PLENTY)
            .await;
        assert_eq!(given.len(), 6000);
        best = best.min(began.elapsed());
    }
    // Thirty-six million comparisons take three seconds.
    assert!(best < Duration::from_millis(1500), "{best:?}");
}
