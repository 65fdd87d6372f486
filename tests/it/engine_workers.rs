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
