//! An endpoint whose owners vanish is claimed ever later.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, run};
use crate::fixtures::lane::Lane;

/// A heartbeat that names a peer as seen unchanged at this beat.
async fn against(e: &Engine, worker: Uuid, peer: Uuid, at: i64) -> Vec<Uuid> {
    let sql = format!("select peer from postrider.heartbeat('{worker}', '{{{peer}}}', '{{{at}}}')");
    all(&e.sql, &sql).await
}
/// Owns it, and vanishes without a report.
async fn lapse(lane: &Lane) {
    let e = &lane.engine;
    let (victim, peer) = (e.worker().await, e.worker().await);
    assert_eq!(e.claim(victim, 1).await, [lane.endpoint]);
    against(e, peer, victim, 0).await;
}

#[tokio::test]
async fn g11_after_lapse_upon_lapse_it_is_claimed_ever_later() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let args = format!("'a.b', '{{}}', endpoint_id => {}", lane.endpoint);
    e.emit(&args).await;
    e.fan_out().await;
    let mut at = vec![0];
    for wait in [0, 1, 4, 15, 40, 40, 40] {
        lapse(&lane).await;
        let lapses = i32::try_from(at.len()).unwrap();
        assert_eq!(e.state::<i32>(lane.endpoint, "lapses").await, lapses);
        let found = lane.until("next_claim_at").await.unwrap();
        let due = wait * 60;
        assert!(
            if wait == 0 {
                found <= 0
            } else {
                (due - 20..=due).contains(&found)
            },
            "lapse {lapses}: {found} s, not {due}"
        );
        if wait > 0 {
            e.pass(u64::try_from(due).unwrap() - 30).await;
            let early = e.worker().await;
            assert!(e.claim(early, 1).await.is_empty(), "lapse {lapses}");
            e.pass(30).await;
        }
        at.push(at[at.len() - 1] + wait);
    }
    // Each of these may have been a request; the leases between, which take no time here, only stretch it.
    for (n, first) in at.iter().enumerate() {
        let within = at[n..].iter().filter(|t| **t < first + 60).count();
        assert!(within <= 5, "{within} in the hour from minute {first}");
    }
    assert_eq!(at, [0, 0, 1, 5, 20, 60, 100, 140]);
}

#[tokio::test]
async fn g11_any_report_clears_the_lapses() {
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
