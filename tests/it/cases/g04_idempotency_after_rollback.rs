//! G04: an idempotency key taken by a transaction that then rolls back loses the second session's event.

use std::time::Duration;

use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, refused, run};
use crate::fixtures::eventually;

const EMIT: &str = "select postrider.emit_event('a.b', '{\"from\":\"b\"}', idempotency_key => 'k')";

/// A waits with the key taken, B asks for it and blocks; A ends so; B's id and A's.
async fn contest(end: &str) -> (Engine, Uuid, Uuid, tokio_postgres::Client) {
    let e = Engine::new().await;
    let (a, b) = (e.session().await, e.session().await);
    run(&a, "begin").await;
    let first: Uuid = one(
        &a,
        "select postrider.emit_event('a.b', '{\"from\":\"a\"}', idempotency_key => 'k')",
    )
    .await;
    run(&b, "begin; set local lock_timeout = '20s'").await;
    let pid: i32 = one(&b, "select pg_backend_pid()").await;
    let asking = tokio::spawn(async move {
        let id: Option<Uuid> = one(&b, EMIT).await;
        (b, id)
    });
    eventually(Duration::from_secs(10), async || {
        let waits = format!("pg_locks where pid = {pid} and not granted");
        (count(&e.sql, &waits).await > 0).then_some(())
    })
    .await;
    run(&a, end).await;
    let (b, second) = asking.await.unwrap();
    (e, first, second.expect("never null"), b)
}

#[tokio::test]
async fn g04_the_first_rolls_back_and_the_second_has_the_event() {
    let (e, first, second, b) = contest("rollback").await;
    assert_ne!(first, second);
    run(&b, "commit").await;
    let body: String = one(&e.sql, "select body from postrider.events").await;
    assert_eq!(body, r#"{"from":"b"}"#);
    assert_eq!(count(&e.sql, "postrider.outbox").await, 1);
}

#[tokio::test]
async fn g04_the_first_commits_and_the_second_is_told_its_id() {
    let (e, first, second, b) = contest("commit").await;
    assert_eq!(first, second);
    // And its transaction goes on.
    run(&b, "select postrider.emit_event('a.more', '{}'); commit").await;
    assert_eq!(
        count(&e.sql, "postrider.events where event_type = 'a.b'").await,
        1
    );
    assert_eq!(
        count(&e.sql, "postrider.events where event_type = 'a.more'").await,
        1
    );
}

#[tokio::test]
async fn g04_a_snapshot_that_cannot_see_the_first_is_told_to_try_again() {
    let e = Engine::new().await;
    for level in ["repeatable read", "serializable"] {
        let b = e.session().await;
        run(
            &b,
            &format!("begin isolation level {level}; select count(*) from postrider.events"),
        )
        .await;
        let key = format!("'{level}'");
        e.emit(&format!("'a.b', '{{}}', idempotency_key => {key}"))
            .await;
        let sql = format!("select postrider.emit_event('a.b', '{{}}', idempotency_key => {key})");
        assert_eq!(refused(&b, &sql).await, "40001", "{level}");
        run(&b, "rollback").await;
        // A snapshot that sees it is told the id.
        run(&b, &format!("begin isolation level {level}")).await;
        let id: Option<Uuid> = one(&b, &sql).await;
        let known: Uuid = one(
            &e.sql,
            &format!("select event_id from postrider.idempotency_keys where key = {key}"),
        )
        .await;
        assert_eq!(id, Some(known), "{level}");
        run(&b, "commit").await;
    }
    assert_eq!(count(&e.sql, "postrider.events").await, 2);
}

#[tokio::test]
async fn g04_keys_are_of_a_tenant() {
    let e = Engine::new().await;
    let of = async |args: &str| e.emit(&format!("'a.b', '{{}}', {args}")).await;
    let first = of("idempotency_key => 'k'").await;
    assert_eq!(of("idempotency_key => 'k'").await, first);
    assert_ne!(of("idempotency_key => 'k', tenant => 'other'").await, first);
    assert_ne!(of("idempotency_key => 'l'").await, first);
    assert_eq!(count(&e.sql, "postrider.events").await, 3);
    assert_eq!(count(&e.sql, "postrider.outbox").await, 3);
    let sql = "select postrider.emit_event('a.b', '{}', idempotency_key => '')";
    assert!(refused(&e.sql, sql).await.starts_with("PR"));
}

#[tokio::test]
async fn g04_the_key_of_an_undone_savepoint_is_free() {
    let e = Engine::new().await;
    let sql = format!("begin; savepoint s; {EMIT}; rollback to s; {EMIT}; commit");
    run(&e.sql, &sql).await;
    assert_eq!(count(&e.sql, "postrider.events").await, 1);
    let id: Uuid = one(&e.sql, "select id from postrider.events").await;
    assert_eq!(one::<Uuid>(&e.sql, EMIT).await, id);
}

#[tokio::test]
async fn g04_twenty_sessions_with_one_key_make_one_event() {
    let e = Engine::new().await;
    let sessions: Vec<_> = futures_util::future::join_all((0..20).map(|_| e.session())).await;
    let ids = futures_util::future::join_all(sessions.iter().map(|s| one::<Uuid>(s, EMIT))).await;
    assert!(ids.windows(2).all(|w| w[0] == w[1]), "{ids:?}");
    assert_eq!(count(&e.sql, "postrider.events").await, 1);
    assert_eq!(count(&e.sql, "postrider.outbox").await, 1);
}

#[tokio::test]
async fn g04_nothing_on_the_path_of_an_emit_runs_out_of_keys() {
    let e = Engine::new().await;
    // A key generated from 32 bits would end after two thousand million refused repeats.
    let sql = "select count(*) from information_schema.columns c
               where c.table_schema = 'postrider' and c.data_type in ('integer', 'smallint')
                 and (c.is_identity = 'YES' or c.column_default like 'nextval%')";
    assert_eq!(one::<i64>(&e.sql, sql).await, 0);
}
