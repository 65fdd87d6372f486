//! fan_out in steps: bounded, one caller at a time, nothing twice and nothing left out.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, refused, run};

/// So many endpoints at once, subscribed to this pattern; their ids are consecutive.
async fn many_endpoints(e: &Engine, n: i64, pattern: &str) {
    let sql = format!(
        "select count(*) from generate_series(1, {n}) i,
             postrider.create_endpoint('https://many' || i || '.example/in', event_types => '{{{pattern}}}')"
    );
    assert_eq!(one::<i64>(&e.sql, &sql).await, n);
}

/// No pair twice (the key sees to that), and so many in all.
async fn owed(e: &Engine, event: Uuid) -> i64 {
    count(
        &e.sql,
        &format!("postrider.pending where event_id = '{event}'"),
    )
    .await
}

#[tokio::test]
async fn a_step_makes_at_most_two_thousand_deliveries() {
    let e = Engine::new().await;
    many_endpoints(&e, 30, "a.*").await;
    e.emit_many(150, "'a.b', '{}'").await;
    let (mut total, mut steps) = (0, 0);
    loop {
        let (_, deliveries, more, busy, _) = e.step(Uuid::nil()).await;
        assert!(deliveries <= 2000 && !busy, "{deliveries}");
        assert!(deliveries > 0 || !more, "a step without progress");
        total += deliveries;
        steps += 1;
        if !more {
            break;
        }
    }
    assert_eq!((total, steps), (4500, 3));
    assert_eq!(count(&e.sql, "postrider.outbox").await, 0);
    assert_eq!(e.step(Uuid::nil()).await, (0, 0, false, false, vec![]));
}

#[tokio::test]
async fn a_large_event_yields_to_newer_small_ones() {
    let e = Engine::new().await;
    many_endpoints(&e, 5000, "large.*").await;
    let small = e.endpoint("event_types => '{small.*}'").await;
    let large = e.emit("'large.one', '{}'").await;
    let mut newer = vec![e.emit("'small.one', '{}'").await];
    let mut steps = 0;
    let mut done = 0;
    loop {
        let (_, deliveries, more, _, _) = e.step(Uuid::nil()).await;
        steps += 1;
        assert!(deliveries <= 2000, "{deliveries}");
        for event in newer.drain(..) {
            let sql =
                format!("postrider.pending where event_id = '{event}' and endpoint_id = {small}");
            assert_eq!(
                count(&e.sql, &sql).await,
                1,
                "a small event waited for a large one"
            );
        }
        let now = owed(&e, large).await;
        assert!(now > done || !more, "the large event stood still");
        done = now;
        if !more {
            break;
        }
        newer.push(e.emit("'small.one', '{}'").await);
        assert!(steps < 20, "no end");
    }
    assert!(steps >= 3, "{steps}");
    assert_eq!(owed(&e, large).await, 5000);
    assert_eq!(count(&e.sql, "postrider.outbox").await, 0);
}

#[tokio::test]
async fn a_crash_between_steps_neither_doubles_nor_loses() {
    let e = Engine::new().await;
    many_endpoints(&e, 4100, "a.*").await;
    let event = e.emit("'a.b', '{}'").await;
    let crashing = e.session().await;
    let mut more = true;
    let mut steps = 0;
    while more {
        let sql =
            "begin; select postrider.fan_out('00000000-0000-0000-0000-000000000000'); rollback";
        run(&crashing, sql).await;
        more = e.step(Uuid::nil()).await.2;
        steps += 1;
        assert!(steps < 20, "no end");
    }
    assert_eq!(owed(&e, event).await, 4100);
    let unmarked = "postrider.endpoint_state where next_claim_at is null";
    assert_eq!(count(&e.sql, unmarked).await, 0);
}

#[tokio::test]
async fn several_large_events_all_end() {
    let e = Engine::new().await;
    many_endpoints(&e, 2001, "a.*").await;
    let events = e.emit_many(3, "'a.b', '{}'").await;
    e.fan_out().await;
    for event in events {
        assert_eq!(owed(&e, event).await, 2001);
    }
}

#[tokio::test]
async fn exactly_the_bound_is_no_large_event() {
    let e = Engine::new().await;
    many_endpoints(&e, 2000, "a.*").await;
    e.emit("'a.b', '{}'").await;
    assert_eq!(e.step(Uuid::nil()).await, (1, 2000, false, false, vec![]));
}

#[tokio::test]
async fn a_second_caller_is_told_that_another_is_at_it() {
    let e = Engine::new().await;
    e.endpoint("").await;
    e.emit("'a.b', '{}'").await;
    let other = e.session().await;
    let nil = Uuid::nil();
    run(&other, &format!("begin; select postrider.fan_out('{nil}')")).await;
    assert_eq!(e.step(nil).await, (0, 0, false, true, vec![]));
    run(&other, "rollback").await;
    assert_eq!(e.step(nil).await, (1, 1, false, false, vec![]));
}

#[tokio::test]
async fn events_that_become_visible_out_of_order_are_not_passed_over() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let slow = e.session().await;
    run(&slow, "begin; select postrider.emit_event('a.b', '{}')").await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    run(&slow, "commit").await;
    e.fan_out().await;
    let sql = format!("postrider.pending where endpoint_id = {endpoint}");
    assert_eq!(count(&e.sql, &sql).await, 2);
}

#[tokio::test]
async fn it_never_waits_for_an_open_emitter() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let open = e.session().await;
    let emit =
        format!("begin; select postrider.emit_event('a.b', '{{}}', endpoint_id => {endpoint})");
    run(&open, &emit).await;
    e.emit("'a.b', '{}'").await;
    let sql = format!(
        "set lock_timeout = '200ms'; select postrider.fan_out('{}')",
        Uuid::nil()
    );
    assert_eq!(refused(&e.session().await, &sql).await, "");
    run(&open, "commit").await;
}
