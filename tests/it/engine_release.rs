//! Giving an endpoint up: lock, then look. Whatever was fanned out meanwhile stays in sight.

use std::time::Duration;

use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, run};
use crate::fixtures::eventually;
use crate::fixtures::lane::Lane;

/// Waits until another session waits for a lock, or has gone on without it.
async fn waits_or_ended<T>(e: &Engine, call: &tokio::task::JoinHandle<T>) {
    let waiting = "pg_locks l join pg_stat_activity a using (pid)
                   where not l.granted and a.datname = current_database()";
    eventually(Duration::from_secs(10), async || {
        (call.is_finished() || count(&e.sql, waiting).await > 0).then_some(())
    })
    .await;
}

/// One session is in the middle of the first call when the other begins the second.
async fn in_this_order(lane: &Lane, first: &str, second: &str) {
    let e = &lane.engine;
    e.emit("'a.b', '{}'").await;
    let (a, b) = (e.session().await, e.session().await);
    run(&a, &format!("begin; {first}")).await;
    let call = second.to_owned();
    let waiting = tokio::spawn(async move { run(&b, &call).await });
    waits_or_ended(e, &waiting).await;
    run(&a, "commit").await;
    waiting.await.unwrap();
    // What was left for later, since the other held the endpoint.
    for call in [
        second,
        &calls(lane).0,
        "select postrider.register_worker('last', '0')",
    ] {
        run(&e.sql, call).await;
    }
    assert_eq!(count(&e.sql, "postrider.pending").await, 1);
    let seen = "owner is null and next_claim_at <= postrider.now()";
    assert!(
        e.state::<bool>(lane.endpoint, seen).await,
        "lost to sight: {first}"
    );
}

/// An owned endpoint with nothing owed.
async fn idle(policy: &str) -> Lane {
    let lane = Lane::new(policy).await;
    lane.once(200).await;
    assert_eq!(count(&lane.engine.sql, "postrider.pending").await, 0);
    lane
}

/// The mark may be right already (it is due and stays so): the row must be locked even then.
async fn with_the_mark_right_already() -> Lane {
    let lane = idle("patient").await;
    let sql =
        "update postrider.endpoint_state set next_claim_at = postrider.now() - interval '1 hour'";
    run(&lane.engine.sql, sql).await;
    lane
}

fn calls(lane: &Lane) -> (String, [String; 3]) {
    let (w, id) = (lane.worker, lane.endpoint);
    (
        format!("select postrider.fan_out('{}')", Uuid::nil()),
        [
            format!("select postrider.release_endpoints('{w}', '{{{id}}}', '{{0}}')"),
            format!("select postrider.deregister_worker('{w}')"),
            format!(
                "select h.peer from postrider.register_worker('peer', '0') r,
                 lateral postrider.heartbeat(r.worker, '{{{w}}}', '{{0}}') h limit 1"
            ),
        ],
    )
}

#[tokio::test]
async fn fan_out_first_then_the_end_of_owning() {
    for n in 0..3 {
        let lane = idle("patient").await;
        let (fan_out, endings) = calls(&lane);
        in_this_order(&lane, &fan_out, &endings[n]).await;
        let lane = with_the_mark_right_already().await;
        let (fan_out, endings) = calls(&lane);
        in_this_order(&lane, &fan_out, &endings[n]).await;
    }
}

#[tokio::test]
async fn the_end_of_owning_first_then_fan_out() {
    for n in 0..3 {
        let lane = idle("patient").await;
        let (fan_out, endings) = calls(&lane);
        in_this_order(&lane, &endings[n], &fan_out).await;
    }
}

#[tokio::test]
async fn operators_look_after_they_locked_too() {
    for verbs in [
        "select postrider.resume_endpoint(ID)",
        "select postrider.enable_endpoint(ID)",
    ] {
        let lane = Lane::new("patient").await;
        let e = &lane.engine;
        let stop = if verbs.contains("resume") {
            "pause_endpoint"
        } else {
            "disable_endpoint"
        };
        lane.verb(stop).await;
        let (fan_out, _) = calls(&lane);
        let verb = verbs.replace("ID", &lane.endpoint.to_string());
        in_this_order(&lane, &fan_out, &verb).await;
        run(&e.sql, "delete from postrider.pending; update postrider.endpoint_state set next_claim_at = null").await;
        lane.verb(stop).await;
        in_this_order(&lane, &verb, &fan_out).await;
    }
}

#[tokio::test]
async fn a_release_marks_what_is_owed_and_keeps_the_pace() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(3).await;
    e.release(lane.worker, lane.endpoint, 700).await;
    assert!(
        e.state::<bool>(
            lane.endpoint,
            "owner is null and next_claim_at <= postrider.now()"
        )
        .await
    );
    let next = e.worker().await;
    let sql = format!(
        "select pace_ahead_ms from postrider.claim_endpoints('{next}', 10) where endpoint_id is not null"
    );
    let ahead: i64 = one(&e.sql, &sql).await;
    assert!((1..=700).contains(&ahead), "{ahead}");
    e.release(next, lane.endpoint, 0).await;
    assert_eq!(one::<i64>(&e.sql, &sql).await, 0);
}

#[tokio::test]
async fn a_release_with_nothing_owed_leaves_nothing_to_claim() {
    let lane = idle("patient").await;
    let e = &lane.engine;
    e.release(lane.worker, lane.endpoint, 0).await;
    assert!(
        e.state::<bool>(lane.endpoint, "owner is null and next_claim_at is null")
            .await
    );
    // Only later work: marked for its time.
    e.emit("'a.b', '{}', deliver_at => postrider.now() + interval '1 hour'")
        .await;
    e.fan_out().await;
    assert_eq!(lane.until("next_claim_at").await, Some(3600));
}

#[tokio::test]
async fn what_is_not_owned_cannot_be_released() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let stranger = e.worker().await;
    e.release(stranger, lane.endpoint, 5000).await;
    let owner: Option<Uuid> = e.state(lane.endpoint, "owner").await;
    assert_eq!(owner, Some(lane.worker));
    assert!(e.state::<bool>(lane.endpoint, "pace_until is null").await);
}

/// Operators never touch the owner.
#[tokio::test]
async fn only_the_end_of_a_lease_takes_an_endpoint_from_its_owner() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    for verb in [
        "pause_endpoint",
        "resume_endpoint",
        "disable_endpoint",
        "enable_endpoint",
        "rotate_secret",
        "delete_endpoint",
    ] {
        lane.verb(verb).await;
        let owner: Option<Uuid> = e.state(lane.endpoint, "owner").await;
        assert_eq!(owner, Some(lane.worker), "{verb}");
    }
    run(&e.sql, "select postrider.maintain()").await;
    let owner: Option<Uuid> = e.state(lane.endpoint, "owner").await;
    assert_eq!(owner, Some(lane.worker));
}
