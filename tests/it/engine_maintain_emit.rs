//! maintain never blocks an emit, and waits for none.

use serde_json::Value;
use tokio_postgres::Client;

use crate::fixtures::engine::{Engine, one, refused, run};
use crate::fixtures::lane::Lane;

const DAY: u64 = 86_400;
const EMIT: &str = "select postrider.emit_event('a.b', '{}')";

/// While a leaf for today is there.
const AT_ONCE: &str = "200ms";
/// While strays are moved to the leaf that was missing: making it takes a moment, and nothing else may be
/// done under its locks.
const A_MOMENT: &str = "1s";

/// Emits, each in a transaction of its own, as long as this goes on; none may fail or wait so long for a lock.
async fn emits_meanwhile(e: &Engine, limit: &str, call: &'static str) -> Value {
    let s = e.session().await;
    let emitter = e.session().await;
    run(&emitter, &format!("set lock_timeout = '{limit}'")).await;
    let working = tokio::spawn(async move { one::<Value>(&s, call).await });
    let mut failed = Vec::new();
    while !working.is_finished() {
        let code = refused(&emitter, EMIT).await;
        if !code.is_empty() {
            failed.push(code);
        }
    }
    let done = working.await.unwrap();
    assert!(failed.is_empty(), "{failed:?} while: {done}");
    assert_eq!(done["busy"], false);
    done
}

#[tokio::test]
async fn an_open_emitter_holds_it_up_no_more_than_it_holds_up_an_emit() {
    let e = Engine::at_noon().await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    e.pass(10 * DAY).await;
    let open = e.session().await;
    run(&open, &format!("begin; {EMIT}")).await;
    // Leaves to make, and the open emitter's own is there.
    let done = emits_meanwhile(&e, AT_ONCE, "select postrider.maintain()").await;
    assert_eq!(done["leaves_made"], 30, "{done}");
    // Much to do and no leaf for today: everything meets the open emitter, which wrote a stray.
    e.pass(80 * DAY).await;
    run(&open, EMIT).await;
    for _ in 0..3 {
        emits_meanwhile(&e, A_MOMENT, "select postrider.maintain(true)").await;
    }
    run(&open, "commit").await;
    let done = emits_meanwhile(&e, A_MOMENT, "select postrider.maintain(true)").await;
    assert!(done["strays_moved"].as_i64() > Some(0), "{done}");
}

#[tokio::test]
async fn an_open_maintain_holds_up_no_emit() {
    let e = Engine::at_noon().await;
    e.pass(DAY).await;
    let open = e.session().await;
    run(&open, "begin; select postrider.maintain()").await;
    run(&e.sql, "set lock_timeout = '200ms'").await;
    run(&e.sql, EMIT).await;
    run(&open, "commit").await;
}

#[tokio::test]
async fn strays_and_a_long_list_of_expired_deliveries_hold_up_no_emit() {
    let e = Engine::at_noon().await;
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
    let mut expired = 0;
    loop {
        let done = emits_meanwhile(&e, A_MOMENT, "select postrider.maintain()").await;
        expired += done["expired"].as_i64().unwrap();
        if done["more"] == false {
            break;
        }
    }
    assert_eq!(expired, 60_000);
}

/// Neither is a report refused whose history is among the strays.
#[tokio::test]
async fn moving_strays_fails_no_report() {
    let lane = Lane::at_noon("brisk").await;
    let e = &lane.engine;
    e.pass(45 * DAY).await;
    let events = lane.owe(400).await;
    lane.report(&[lane.attempt(events[0], 200)]).await;
    let s = e.session().await;
    let working =
        tokio::spawn(async move { one::<Value>(&s, "select postrider.maintain()").await });
    let mut lost = 0;
    for event in &events[1..] {
        let verdict = lane.report(&[lane.attempt(*event, 200)]).await;
        lost += i32::from(verdict.history_lost);
    }
    let done = working.await.unwrap();
    assert!(done["strays_moved"].as_i64() > Some(400), "{done}");
    assert_eq!(lost, 0, "history lost while: {done}");
}

/// A long catch-up drops many leaves, which locks their parents.
#[tokio::test]
async fn catching_up_on_many_days_holds_up_no_emit() {
    let e = Engine::at_noon().await;
    for _ in 0..8 {
        e.pass(30 * DAY).await;
        let s: Client = e.session().await;
        let sql = "select postrider._make_leaves((postrider.now() at time zone 'UTC')::date, (postrider.now() at time zone 'UTC')::date + 30)";
        run(&s, sql).await;
    }
    let old = "select count(*) from pg_class where relnamespace = 'postrider'::regnamespace and relispartition and relkind = 'r'
               and relname ~ '^(events|finished|attempts)_[0-9]{8}$'";
    let before: i64 = one(&e.sql, old).await;
    for _ in 0..100 {
        emits_meanwhile(&e, AT_ONCE, "select postrider.maintain(true)").await;
        if one::<i64>(&e.sql, old).await <= before - 600 {
            return;
        }
    }
    panic!(
        "{} of {before} leaves are left",
        one::<i64>(&e.sql, old).await
    );
}
