//! The ladder is a trigger: it follows the count, whoever changes it, and nothing else.

use crate::fixtures::engine::{Engine, count, one, run};
use crate::fixtures::lane::Lane;

async fn set(lane: &Lane, columns: &str) {
    let sql = format!(
        "update postrider.endpoint_state set {columns} where endpoint_id = {}",
        lane.endpoint
    );
    run(&lane.engine.sql, &sql).await;
}

#[tokio::test]
async fn a_direct_update_of_the_count_fires_it() {
    let lane = Lane::new("brisk").await;
    set(&lane, "failures = 10, failing_since = postrider.now()").await;
    assert_eq!(lane.rung().await, 1);
    assert_eq!(lane.until("ladder_paused_until").await, Some(3600));
    assert_eq!(lane.alerts().await, ["endpoint_paused"]);
    // Less than before is no failure.
    lane.engine.pass(3601).await;
    set(&lane, "failures = 9").await;
    set(&lane, "reason = 'x'").await;
    assert_eq!(lane.rung().await, 1);
    set(&lane, "failures = 20").await;
    assert_eq!(lane.rung().await, 2);
    set(&lane, "failures = 0, failing_since = null").await;
    assert_eq!(lane.rung().await, 0);
    assert_eq!(lane.until("ladder_paused_until").await, None);
    assert_eq!(lane.alerts().await.len(), 2);
}

#[tokio::test]
async fn ending_its_pause_by_hand_recomputes_the_mark() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    lane.owe(1).await;
    e.release(lane.worker, lane.endpoint, 0).await;
    set(&lane, "failures = 10, failing_since = postrider.now()").await;
    assert!(e.claim(lane.worker, 1).await.is_empty());
    set(&lane, "failures = 0, failing_since = null").await;
    assert_eq!(e.claim(lane.worker, 1).await, [lane.endpoint]);
}

#[tokio::test]
async fn a_disabled_endpoint_climbs_no_further() {
    let lane = Lane::new("brisk").await;
    lane.fail(9).await;
    lane.verb("disable_endpoint").await;
    assert_eq!(lane.alerts().await, ["endpoint_disabled"]);
    lane.engine.pass(60).await;
    set(&lane, "failures = 25").await;
    assert_eq!(lane.rung().await, 0);
    assert_eq!(lane.until("ladder_paused_until").await, None);
    assert_eq!(lane.alerts().await, ["endpoint_disabled"]);
}

#[tokio::test]
async fn a_policy_is_a_row_and_its_rungs_are_rows() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let sql = format!(
        "create temp table own as select * from postrider.policies where name = 'brisk';
         update own set name = 'own', max_attempts = 100, disable_after = null;
         insert into postrider.policies select * from own;
         insert into postrider.policy_rungs (policy, rung, failures, pause) values ('own', 1, 2, '5 min'), ('own', 2, 4, null);
         select postrider.update_endpoint({}, policy => 'own')",
        lane.endpoint
    );
    run(&e.sql, &sql).await;
    lane.fail(2).await;
    assert_eq!(lane.until("ladder_paused_until").await, Some(300));
    e.pass(301).await;
    assert!(lane.fail(2).await.stopped);
    assert_eq!(
        lane.alerts().await,
        ["endpoint_paused", "endpoint_disabled"]
    );
}

/// What a restore does: rows come in as they were, and no update trigger sees them.
#[tokio::test]
async fn restoring_data_moves_no_state() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    lane.owe(3).await;
    lane.fail(10).await;
    e.emit_many(3, "'a.b', '{}'").await;
    let (listener, mut hints) = e.db.database().connect_listening().await.unwrap();
    run(&listener, "listen postrider").await;
    let sql = "begin;
        create temp table s on commit drop as select * from postrider.endpoint_state;
        create temp table o on commit drop as select * from postrider.outbox;
        delete from postrider.endpoint_state; delete from postrider.outbox; delete from postrider.alerts;
        set local search_path = '';
        insert into postrider.endpoint_state select * from pg_temp.s;
        insert into postrider.outbox select * from pg_temp.o;
        commit";
    let before: String = e.state(lane.endpoint, "endpoint_state::text").await;
    run(&e.sql, sql).await;
    assert_eq!(
        e.state::<String>(lane.endpoint, "endpoint_state::text")
            .await,
        before
    );
    assert!(lane.alerts().await.is_empty());
    let told = crate::fixtures::engine::heard(&listener, &mut hints).await;
    assert!(told.len() <= 1, "{told:?}");
}

#[tokio::test]
async fn deleting_raises_no_alert() {
    let lane = Lane::new("brisk").await;
    lane.fail(10).await;
    lane.verb("delete_endpoint").await;
    assert_eq!(lane.alerts().await, ["endpoint_paused"]);
    let open = "postrider.alerts where dismissed_at is null";
    assert_eq!(count(&lane.engine.sql, open).await, 0);
}

#[tokio::test]
async fn endpoints_climb_apart() {
    let e = Engine::new().await;
    let (a, b) = (
        e.endpoint("policy => 'brisk'").await,
        e.endpoint("policy => 'brisk'").await,
    );
    let sql = "update postrider.endpoint_state set failing_since = postrider.now(), failures = case endpoint_id when ID then 10 else 9 end";
    run(&e.sql, &sql.replace("ID", &a.to_string())).await;
    assert_eq!(
        (
            e.state::<i32>(a, "rung").await,
            e.state::<i32>(b, "rung").await
        ),
        (1, 0)
    );
    let paused: Vec<i64> =
        crate::fixtures::engine::all(&e.sql, "select endpoint_id from postrider.alerts").await;
    assert_eq!(paused, [a]);
    assert_eq!(
        one::<i64>(&e.sql, "select count(*) from postrider.alerts").await,
        1
    );
}
