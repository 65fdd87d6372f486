//! Workers: a lease ends when a peer has seen its beat stand still, and in no other way.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, run};
use crate::fixtures::lane::Lane;

async fn beat(e: &Engine, worker: Uuid) -> i64 {
    one(
        &e.sql,
        &format!("select beat from postrider.workers where id = '{worker}'"),
    )
    .await
}

/// A heartbeat that names a peer as seen unchanged at this beat.
async fn against(e: &Engine, worker: Uuid, peer: Uuid, at: i64) -> Vec<Uuid> {
    let sql = format!("select peer from postrider.heartbeat('{worker}', '{{{peer}}}', '{{{at}}}')");
    all(&e.sql, &sql).await
}

#[tokio::test]
async fn registering_tells_the_beats_to_watch() {
    let e = Engine::new().await;
    let first = e.worker().await;
    run(
        &e.sql,
        &format!(
            "select postrider.heartbeat('{first}', '{{}}', '{{}}') from generate_series(1, 3)"
        ),
    )
    .await;
    let rows = e
        .sql
        .query("select * from postrider.register_worker('test', '0')", &[])
        .await
        .unwrap();
    let new: Uuid = rows[0].get("worker");
    let mut beats: Vec<(Uuid, i64)> = rows
        .iter()
        .map(|r| (r.get("peer"), r.get("beat")))
        .collect();
    beats.sort();
    let mut expected = vec![(first, 3), (new, 0)];
    expected.sort();
    assert_eq!(beats, expected);
    // An id is one lease: the same name again is another worker.
    assert_ne!(e.worker().await, e.worker().await);
    assert_eq!(count(&e.sql, "postrider.workers").await, 4);
}

#[tokio::test]
async fn a_beat_that_moved_keeps_its_lease_and_one_that_stood_still_loses_it() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let peer = e.worker().await;
    let seen = beat(e, lane.worker).await;
    run(
        &e.sql,
        &format!(
            "select postrider.heartbeat('{}', '{{}}', '{{}}')",
            lane.worker
        ),
    )
    .await;
    assert_eq!(beat(e, lane.worker).await, seen + 1);
    // No clock decides it, however it steps.
    e.db.set_clock_offset(10.0 * 86_400.0).await;
    let mut both = vec![lane.worker, peer];
    both.sort();
    let mut live = against(e, peer, lane.worker, seen).await;
    live.sort();
    assert_eq!(live, both);
    assert_eq!(
        e.state::<Option<Uuid>>(lane.endpoint, "owner").await,
        Some(lane.worker)
    );
    assert_eq!(against(e, peer, lane.worker, seen + 1).await, [peer]);
    assert!(
        e.state::<bool>(
            lane.endpoint,
            "owner is null and next_claim_at <= postrider.now()"
        )
        .await
    );
    // Nobody ends its own lease by mistake.
    assert_eq!(
        against(e, peer, peer, beat(e, peer).await + 1).await,
        [peer]
    );
}

#[tokio::test]
async fn a_takeover_begins_with_an_empty_bucket_and_a_clean_release_keeps_the_pace() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    run(
        &e.sql,
        &format!(
            "select postrider.update_endpoint({}, rate => 2, burst => 8)",
            lane.endpoint
        ),
    )
    .await;
    let peer = e.worker().await;
    against(e, peer, lane.worker, 0).await;
    let ahead = async || -> i64 {
        let sql = format!(
            "select pace_ahead_ms from postrider.claim_endpoints('{peer}', 1) where endpoint_id is not null"
        );
        one(&e.sql, &sql).await
    };
    let empty = ahead().await;
    assert!(
        (3_000..=4_000).contains(&empty),
        "burst / rate = 4 s: {empty}"
    );
    e.release(peer, lane.endpoint, 1500).await;
    let kept = ahead().await;
    assert!((500..=1500).contains(&kept), "{kept}");
    // Deregistering gives up what was not released, its pace unknown.
    run(
        &e.sql,
        &format!("select postrider.deregister_worker('{peer}')"),
    )
    .await;
    assert!(
        e.state::<bool>(
            lane.endpoint,
            "owner is null and next_claim_at <= postrider.now() and lapses = 1"
        )
        .await
    );
    assert_eq!(
        count(&e.sql, &format!("postrider.workers where id = '{peer}'")).await,
        0
    );
    let sql = "extract(epoch from pace_until - postrider.now()) between 3 and 4";
    assert!(e.state::<bool>(lane.endpoint, sql).await);
}

/// Owns it, and vanishes without a report.
async fn lapse(lane: &Lane) {
    let e = &lane.engine;
    let (victim, peer) = (e.worker().await, e.worker().await);
    assert_eq!(e.claim(victim, 1).await, [lane.endpoint]);
    against(e, peer, victim, 0).await;
}

#[tokio::test]
async fn after_lapse_upon_lapse_it_is_claimed_ever_later() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let args = format!("'a.b', '{{}}', endpoint_id => {}", lane.endpoint);
    e.emit(&args).await;
    e.fan_out().await;
    let mut at = vec![0];
    for wait in [0, 1, 4, 15, 30, 30, 30] {
        lapse(&lane).await;
        let lapses = i32::try_from(at.len()).unwrap();
        assert_eq!(e.state::<i32>(lane.endpoint, "lapses").await, lapses);
        let found = lane.until("next_claim_at").await.unwrap();
        let due = wait * 60;
        assert!(
            if wait == 0 {
                found <= 0
            } else {
                (due - 2..=due).contains(&found)
            },
            "lapse {lapses}: {found} s, not {due}"
        );
        if wait > 0 {
            e.pass(u64::try_from(due).unwrap() - 3).await;
            let early = e.worker().await;
            assert!(e.claim(early, 1).await.is_empty(), "lapse {lapses}");
            e.pass(3).await;
        }
        at.push(at[at.len() - 1] + wait);
    }
    assert_eq!(at[1..], [0, 1, 5, 20, 50, 80, 110]);
}

#[tokio::test]
async fn any_report_clears_the_lapses() {
    for status in [200, 500, 429] {
        let lane = Lane::new("patient").await;
        let e = &lane.engine;
        let args = format!("'a.b', '{{}}', endpoint_id => {}", lane.endpoint);
        let event = e.emit(&args).await;
        e.fan_out().await;
        for _ in 0..3 {
            lapse(&lane).await;
            e.pass(300).await;
        }
        assert_eq!(e.claim(lane.worker, 1).await, [lane.endpoint]);
        lane.report(&[lane.attempt(event, status)]).await;
        assert!(
            e.state::<bool>(lane.endpoint, "lapses = 0 and lapsed_until is null")
                .await,
            "{status}"
        );
    }
}

/// Only the owner's report tells that outcomes can be stored.
#[tokio::test]
async fn a_clean_end_is_no_lapse() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    run(
        &e.sql,
        &format!("select postrider.deregister_worker('{}')", lane.worker),
    )
    .await;
    assert!(
        e.state::<bool>(lane.endpoint, "lapses = 0 and owner is null")
            .await
    );
    let next = e.worker().await;
    assert_eq!(e.claim(next, 1).await, [lane.endpoint]);
    run(
        &e.sql,
        &format!("select postrider.deregister_worker('{next}', true)"),
    )
    .await;
    assert!(
        e.state::<bool>(lane.endpoint, "lapses = 1 and owner is null")
            .await
    );
}

#[tokio::test]
async fn two_peers_end_a_lease_once() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let mut ends = Vec::new();
    for _ in 0..6 {
        let (s, peer, dead) = (e.session().await, e.worker().await, lane.worker);
        let sql = format!("select postrider.heartbeat('{peer}', '{{{dead}}}', '{{0}}')");
        ends.push(tokio::spawn(async move { run(&s, &sql).await }));
    }
    for end in ends {
        end.await.unwrap();
    }
    assert!(
        e.state::<bool>(lane.endpoint, "owner is null and lapses = 1")
            .await
    );
    assert_eq!(count(&e.sql, "postrider.workers").await, 6);
}
