//! Retention: a day is emptied when nothing of it is owed, and not before.

use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, run};
use crate::fixtures::lane::Lane;

const DAY: u64 = 86_400;

async fn maintain(client: &Client, catch_up: bool) -> Value {
    one(client, &format!("select postrider.maintain({catch_up})")).await
}

/// So many days with an event each, delivered; the ids.
async fn days(lane: &Lane, n: u64) -> Vec<Uuid> {
    let mut events = Vec::new();
    for _ in 0..n {
        let event = lane.owe(1).await[0];
        lane.report(&[lane.attempt(event, 200)]).await;
        events.push(event);
        lane.engine.pass(DAY).await;
    }
    events
}

async fn kept(e: &Engine) -> Vec<Uuid> {
    all(&e.sql, "select id from postrider.events order by id").await
}

#[tokio::test]
async fn a_day_goes_when_it_is_past_retention_and_with_all_of_it() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    e.emit("'a.b', '{}', idempotency_key => 'k'").await;
    let event = days(&lane, 1).await[0];
    e.fan_out().await;
    run(&e.sql, "delete from postrider.pending").await;
    e.pass(28 * DAY).await;
    maintain(&e.sql, true).await;
    assert!(kept(e).await.contains(&event), "29 days old");
    e.pass(2 * DAY + 60).await;
    let done = maintain(&e.sql, false).await;
    assert_eq!(done["days_emptied"], 1, "{done}");
    for table in ["events", "finished", "attempts", "idempotency_keys"] {
        assert_eq!(
            count(&e.sql, &format!("postrider.{table}")).await,
            0,
            "{table}"
        );
    }
    // Its leaves are dropped when they can be, and the key can be used again.
    let old = format!(
        "pg_class where relname = 'events_' || to_char(postrider._uuid_time('{event}') at time zone 'UTC', 'YYYYMMDD')"
    );
    for _ in 0..3 {
        maintain(&e.sql, false).await;
    }
    assert_eq!(count(&e.sql, &old).await, 0);
    assert_ne!(e.emit("'a.b', '{}', idempotency_key => 'k'").await, event);
}

#[tokio::test]
async fn two_days_at_most_unless_asked_to_catch_up() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let events = days(&lane, 7).await;
    // A clock may jump.
    e.pass(60 * DAY).await;
    assert_eq!(maintain(&e.sql, false).await["days_emptied"], 2);
    assert_eq!(kept(e).await, events[2..]);
    assert_eq!(maintain(&e.sql, false).await["days_emptied"], 2);
    assert_eq!(maintain(&e.sql, true).await["days_emptied"], 3);
    assert!(kept(e).await.is_empty());
}

#[tokio::test]
async fn what_is_owed_keeps_its_day() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    // Owed in pending, until deliver_at and its time to live after that.
    let pending = e
        .emit("'a.b', '{}', deliver_at => postrider.now() + interval '29 days'")
        .await;
    lane.engine.fan_out().await;
    e.pass(DAY).await;
    // Owed in outbox.
    let outbox = e.emit("'a.b', '{}'").await;
    e.pass(DAY).await;
    let done = days(&lane, 1).await[0];
    let _ = done;
    run(&e.sql, &format!("insert into postrider.outbox (event_id) select '{outbox}' where not exists (select from postrider.outbox)")).await;
    run(
        &e.sql,
        &format!("delete from postrider.pending where event_id = '{outbox}'"),
    )
    .await;
    e.pass(29 * DAY - 3600).await;
    let found = maintain(&e.sql, true).await;
    assert_eq!(kept(e).await[..2], [pending, outbox], "{found}");
    assert!(
        !found["days_still_owed"].as_array().unwrap().is_empty(),
        "{found}"
    );
    // It goes as soon as nothing is owed any more.
    e.fan_out().await;
    run(&e.sql, "delete from postrider.pending").await;
    maintain(&e.sql, true).await;
    assert!(!kept(e).await.contains(&pending) && !kept(e).await.contains(&outbox));
}

#[tokio::test]
async fn an_open_reader_of_an_old_day_only_delays_it() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let events = days(&lane, 2).await;
    e.pass(40 * DAY).await;
    let reader = e.session().await;
    let sql = format!(
        "begin isolation level repeatable read; select * from postrider.events where id = '{}'",
        events[0]
    );
    run(&reader, &sql).await;
    let done = maintain(&e.sql, true).await;
    assert_eq!(done["days_emptied"], 1, "{done}");
    assert!(
        !done["waiting_for_locks"].as_array().unwrap().is_empty(),
        "{done}"
    );
    assert_eq!(kept(e).await, [events[0]]);
    run(&reader, "commit").await;
    maintain(&e.sql, true).await;
    assert!(kept(e).await.is_empty());
}

/// Whoever makes a debt of an old day either comes first and is seen, or finds no event.
#[tokio::test]
async fn a_replay_under_way_keeps_its_day() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let event = days(&lane, 1).await[0];
    e.pass(40 * DAY).await;
    let s = e.session().await;
    run(
        &s,
        &format!(
            "begin; select postrider.replay_delivery('{event}', {})",
            lane.endpoint
        ),
    )
    .await;
    let done = maintain(&e.sql, true).await;
    assert_eq!(done["days_emptied"], 0, "{done}");
    run(&s, "commit").await;
    let done = maintain(&e.sql, true).await;
    assert_eq!(done["days_emptied"], 0, "{done}");
    assert_eq!(kept(e).await, [event]);
    lane.report(&[lane.attempt(event, 200).run(2)]).await;
    assert_eq!(maintain(&e.sql, true).await["days_emptied"], 1);
    let sql = format!(
        "select postrider.replay_delivery('{event}', {})",
        lane.endpoint
    );
    assert!(
        crate::fixtures::engine::refused(&e.sql, &sql)
            .await
            .starts_with("PR")
    );
}

#[tokio::test]
async fn a_fan_out_under_way_keeps_its_day() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let event = e.emit("'a.b', '{}'").await;
    e.pass(40 * DAY).await;
    let s = e.session().await;
    run(
        &s,
        &format!("begin; select postrider.fan_out('{}')", lane.worker),
    )
    .await;
    assert_eq!(maintain(&e.sql, true).await["days_emptied"], 0);
    run(&s, "commit").await;
    // Fanned out too late to live.
    let sql = format!("select count(*) from postrider.events where id = '{event}'");
    assert_eq!(one::<i64>(&e.sql, &sql).await, 1);
}

#[tokio::test]
async fn retention_is_a_setting() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    run(&e.sql, "update postrider.settings set retention = '5 days'").await;
    let events = days(&lane, 8).await;
    maintain(&e.sql, true).await;
    let left = kept(e).await;
    assert!((5..=6).contains(&left.len()), "{}", left.len());
    assert_eq!(left, events[8 - left.len()..]);
    let sql = "select postrider.emit_event('a.b', '{}', deliver_at => postrider.now() + interval '6 days')";
    assert_eq!(crate::fixtures::engine::refused(&e.sql, sql).await, "PR005");
}

/// A delivery that waits for a held endpoint is owed too.
#[tokio::test]
async fn what_is_deferred_keeps_its_day() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let holder = e.session().await;
    run(
        &holder,
        &format!("begin; select postrider.pause_endpoint({})", lane.endpoint),
    )
    .await;
    let event = e.emit("'a.b', '{}'").await;
    e.step(Uuid::nil()).await;
    assert_eq!(count(&e.sql, "postrider.pending").await, 0);
    e.pass(40 * DAY).await;
    assert_eq!(maintain(&e.sql, true).await["days_emptied"], 0);
    run(&holder, "rollback").await;
    e.step(Uuid::nil()).await;
    assert_eq!(kept(e).await, [event]);
    assert_eq!(
        count(
            &e.sql,
            &format!("postrider.pending where event_id = '{event}'")
        )
        .await,
        1
    );
}
