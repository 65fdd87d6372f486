//! emit_event needs nobody and waits for nobody.

use crate::fixtures::engine::{Engine, count, run};

async fn rows(e: &Engine) -> (i64, i64) {
    (
        count(&e.sql, "postrider.events").await,
        count(&e.sql, "postrider.outbox").await,
    )
}

#[tokio::test]
async fn it_works_at_every_isolation_level() {
    let e = Engine::new().await;
    for level in [
        "read uncommitted",
        "read committed",
        "repeatable read",
        "serializable",
    ] {
        let sql = format!(
            "begin isolation level {level}; select postrider.emit_event('a.b', '{{}}', idempotency_key => '{level}'); commit"
        );
        run(&e.sql, &sql).await;
    }
    assert_eq!(rows(&e).await, (4, 4));
}

#[tokio::test]
async fn it_waits_for_no_lock_of_workers_and_operators() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    let holder = e.session().await;
    let hold = format!(
        "begin; select postrider.fan_out('{worker}'); select postrider.claim_endpoints('{worker}', 10);
         select postrider.pause_endpoint({endpoint}); select postrider.update_endpoint({endpoint}, description => 'x');
         select from postrider.endpoints for update; select from postrider.endpoint_state for update;
         select from postrider.workers for update; select from postrider.settings for no key update"
    );
    run(&holder, &hold).await;
    let emit = format!(
        "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{{}}');
         select postrider.emit_event('a.b', '{{}}', endpoint_id => {endpoint})"
    );
    run(&e.session().await, &emit).await;
    run(&holder, "rollback").await;
    // And two emitters wait for neither of them.
    run(
        &holder,
        "begin; select postrider.emit_event('a.b', '{}', idempotency_key => 'one')",
    )
    .await;
    let other = "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{}', idempotency_key => 'two')";
    run(&e.session().await, other).await;
    run(&holder, "commit").await;
}
