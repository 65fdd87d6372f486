//! maintain never blocks an emit, and waits for none.

use serde_json::Value;
use tokio_postgres::Client;

use crate::fixtures::engine::{Engine, one, refused, run};

const DAY: u64 = 86_400;
const EMIT: &str = "select postrider.emit_event('a.b', '{}')";

/// Emits, each in a transaction of its own, as long as this goes on; none may wait 200 ms for a lock.
async fn emits_meanwhile(e: &Engine, call: &'static str) -> Value {
    let s = e.session().await;
    let emitter = e.session().await;
    run(&emitter, "set lock_timeout = '200ms'").await;
    let working = tokio::spawn(async move { one::<Value>(&s, call).await });
    let mut waited = 0;
    while !working.is_finished() {
        if !refused(&emitter, EMIT).await.is_empty() {
            waited += 1;
        }
    }
    let done = working.await.unwrap();
    assert_eq!(waited, 0, "an emit waited while: {done}");
    assert_eq!(done["busy"], false);
    done
}

#[tokio::test]
async fn an_open_emitter_holds_it_up_no_more_than_it_holds_up_an_emit() {
    let e = Engine::new().await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    e.pass(10 * DAY).await;
    let open = e.session().await;
    run(&open, &format!("begin; {EMIT}")).await;
    // Leaves to make, and the open emitter's own is there.
    let done = emits_meanwhile(&e, "select postrider.maintain()").await;
    assert_eq!(done["leaves_made"], 30, "{done}");
    // Much to do and no leaf for today: everything meets the open emitter, which wrote a stray.
    e.pass(80 * DAY).await;
    run(&open, EMIT).await;
    for _ in 0..3 {
        emits_meanwhile(&e, "select postrider.maintain(true)").await;
    }
    run(&open, "commit").await;
    let done = emits_meanwhile(&e, "select postrider.maintain(true)").await;
    assert!(done["strays_moved"].as_i64() > Some(0), "{done}");
}

#[tokio::test]
async fn an_open_maintain_holds_up_no_emit() {
    let e = Engine::new().await;
    e.pass(DAY).await;
    let open = e.session().await;
    run(&open, "begin; select postrider.maintain()").await;
    run(&e.sql, "set lock_timeout = '200ms'").await;
    run(&e.sql, EMIT).await;
    run(&open, "commit").await;
}

#[tokio::test]
async fn strays_and_a_long_list_of_expired_deliveries_hold_up_no_emit() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let sql = format!(
        "with made as (insert into postrider.events (id, tenant, event_type, body, created_at)
                       select postrider._uuid_v7(postrider.now()), 'default', 'a.b', '{{}}', postrider.now() from generate_series(1, 60000) returning id)
         insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
         select id, {endpoint}, postrider.now(), postrider.now() + interval '72 hours' from made"
    );
    run(&e.sql, &sql).await;
    // Past the last leaf.
    e.pass(45 * DAY).await;
    run(&e.sql, EMIT).await;
    let done = emits_meanwhile(&e, "select postrider.maintain()").await;
    assert_eq!(done["expired"], 60_000, "{done}");
}

/// A long catch-up drops many leaves, which locks their parents.
#[tokio::test]
async fn catching_up_on_many_days_holds_up_no_emit() {
    let e = Engine::new().await;
    for _ in 0..8 {
        e.pass(30 * DAY).await;
        let s: Client = e.session().await;
        let sql = "select postrider._make_leaves((postrider.now() at time zone 'UTC')::date, (postrider.now() at time zone 'UTC')::date + 30)";
        run(&s, sql).await;
    }
    let mut dropped = 0;
    for _ in 0..20 {
        let done = emits_meanwhile(&e, "select postrider.maintain(true)").await;
        let some = done["leaves_dropped"].as_i64().unwrap();
        dropped += some;
        if some == 0 {
            break;
        }
    }
    assert!(dropped >= 600, "{dropped}");
}
