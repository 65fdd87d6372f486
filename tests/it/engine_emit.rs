//! emit_event: an event exists if and only if its transaction committed.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, refused, run};
use crate::fixtures::eventually;

async fn rows(e: &Engine) -> (i64, i64) {
    (
        count(&e.sql, "postrider.events").await,
        count(&e.sql, "postrider.outbox").await,
    )
}

#[tokio::test]
async fn what_is_rolled_back_never_was() {
    let e = Engine::new().await;
    let mut s = e.session().await;
    let t = s.transaction().await.unwrap();
    run(
        t.client(),
        "select postrider.emit_event('a.b', '{}', idempotency_key => 'k')",
    )
    .await;
    assert_eq!(rows(&e).await, (0, 0), "visible before its commit");
    t.rollback().await.unwrap();
    assert_eq!(rows(&e).await, (0, 0));
    assert_eq!(count(&e.sql, "postrider.idempotency_keys").await, 0);
}

#[tokio::test]
async fn a_savepoint_takes_only_its_own_back() {
    let e = Engine::new().await;
    let sql = "begin; savepoint s; select postrider.emit_event('a.one', '{}'); rollback to s;
               select postrider.emit_event('a.two', '{}'); commit";
    run(&e.sql, sql).await;
    let types: Vec<String> = all(&e.sql, "select event_type from postrider.events").await;
    assert_eq!(types, ["a.two"]);
    assert_eq!(rows(&e).await, (1, 1));
}

#[tokio::test]
async fn a_block_undone_by_its_exception_handler_emits_nothing() {
    let e = Engine::new().await;
    let sql = "do $$ begin
                   begin
                       perform postrider.emit_event('a.undone', '{}');
                       perform 1 / 0;
                   exception when division_by_zero then null;
                   end;
                   perform postrider.emit_event('a.kept', '{}');
               end $$";
    run(&e.sql, sql).await;
    let types: Vec<String> = all(&e.sql, "select event_type from postrider.events").await;
    assert_eq!(types, ["a.kept"]);
    assert_eq!(rows(&e).await, (1, 1));
}

#[tokio::test]
async fn a_session_killed_before_its_commit_emits_nothing() {
    let e = Engine::new().await;
    let s = e.session().await;
    let pid: i32 = one(&s, "select pg_backend_pid()").await;
    run(&s, "begin; select postrider.emit_event('a.b', '{}')").await;
    run(&e.sql, &format!("select pg_terminate_backend({pid})")).await;
    let gone = format!("pg_stat_activity where pid = {pid}");
    eventually(std::time::Duration::from_secs(10), async || {
        (count(&e.sql, &gone).await == 0).then_some(())
    })
    .await;
    assert_eq!(rows(&e).await, (0, 0));
}

#[tokio::test]
async fn literals_jsonb_and_json_find_their_overload() {
    let e = Engine::new().await;
    let text = r#"{"b":1.0, "a":123456789012345678901,"z":1e2,"u":"\u00e9 / 😀","b":2}"#;
    let body = async |payload: &str| -> String {
        let id = e.emit(&format!("'a.b', {payload}")).await;
        one(
            &e.sql,
            &format!("select body from postrider.events where id = '{id}'"),
        )
        .await
    };
    assert_eq!(body(&format!("'{text}'")).await, text);
    assert_eq!(body(&format!("'{text}'::json")).await, text);
    assert_eq!(body(&format!("'{text}'::text")).await, text);
    assert_eq!(
        body("jsonb_build_object('b', 1, 'a', 2)").await,
        r#"{"a": 2, "b": 1}"#
    );
    assert_eq!(body("json_build_object('b', 1)").await, r#"{"b" : 1}"#);
    assert_eq!(body("to_jsonb('x'::text)").await, "\"x\"");
    // An untyped driver parameter is text.
    let row = e
        .sql
        .query_one("select postrider.emit_event('a.b', $1)", &[&text])
        .await
        .unwrap();
    let id: Uuid = row.get(0);
    let sent: String = one(
        &e.sql,
        &format!("select body from postrider.events where id = '{id}'"),
    )
    .await;
    assert_eq!(sent, text);
}

#[tokio::test]
async fn what_cannot_be_sent_is_refused() {
    let e = Engine::new().await;
    let refused =
        async |args: &str| refused(&e.sql, &format!("select postrider.emit_event({args})")).await;
    for event_type in [
        "''",
        "'a..b'",
        "'.a'",
        "'a.'",
        "'a b'",
        "E'a\\r\\nX: y'",
        "'a*'",
        "'ä'",
        "null",
        "repeat('a', 129)",
    ] {
        assert_eq!(
            refused(&format!("{event_type}, '{{}}'")).await,
            "PR001",
            "{event_type}"
        );
    }
    assert_eq!(refused("repeat('a', 128), '{}'").await, "");
    assert_eq!(refused("'A-b_1.2', '{}'").await, "");
    for payload in [
        "'{'",
        "''",
        "null::text",
        "null::jsonb",
        "null::json",
        "'{} {}'",
    ] {
        assert_eq!(
            refused(&format!("'a.b', {payload}")).await,
            "PR002",
            "{payload}"
        );
    }
    run(
        &e.sql,
        "update postrider.settings set max_payload_bytes = 100",
    )
    .await;
    assert_eq!(refused("'a.b', to_jsonb(repeat('é', 49))").await, "");
    assert_eq!(refused("'a.b', to_jsonb(repeat('é', 50))").await, "PR003");
    let unknown = "'a.b', '{}', endpoint_id => 1000";
    assert_eq!(refused(unknown).await, "PR004");
    let other = e.endpoint("tenant => 'other'").await;
    assert_eq!(
        refused(&format!("'a.b', '{{}}', endpoint_id => {other}")).await,
        "PR004"
    );
    assert_eq!(
        refused(&format!("'a.b', '{{}}', 'other', endpoint_id => {other}")).await,
        ""
    );
    run(
        &e.sql,
        &format!("select postrider.delete_endpoint({other})"),
    )
    .await;
    assert_eq!(
        refused(&format!("'a.b', '{{}}', 'other', endpoint_id => {other}")).await,
        "PR004"
    );
    assert_eq!(
        refused("'a.b', '{}', deliver_at => now() + interval '29 days'").await,
        ""
    );
    assert_eq!(
        refused("'a.b', '{}', deliver_at => now() + interval '31 days'").await,
        "PR005"
    );
    assert_eq!(
        refused("'a.b', '{}', deliver_at => 'infinity'").await,
        "PR005"
    );
}

#[tokio::test]
async fn payloads_of_any_size_pass() {
    let e = Engine::new().await;
    for (character, size) in [
        ("x", 7_990),
        ("x", 8_001),
        ("x", 9_000),
        ("x", 1_048_576),
        ("€", 3_000),
        ("€", 349_525),
    ] {
        let id = e
            .emit(&format!("'a.b', to_jsonb(repeat('{character}', {size}))"))
            .await;
        let sql = format!("select char_length(body) from postrider.events where id = '{id}'");
        assert_eq!(one::<i32>(&e.sql, &sql).await, size + 2);
    }
}

#[tokio::test]
async fn ids_are_uuid_v7_in_the_order_of_emits() {
    let e = Engine::new().await;
    let sql = "select array_agg(id order by n) = array_agg(id order by id)
               from (select n, postrider.emit_event('a.b', '{}') as id, pg_sleep(0.001) from generate_series(1, 50) n) x";
    assert!(one::<bool>(&e.sql, sql).await);
    let sql = "select bool_and(id::text ~ '^.{14}7.{4}[89ab]') and bool_and(
                   abs(extract(epoch from created_at) * 1000 - ('x' || lpad(left(replace(id::text, '-', ''), 12), 16, '0'))::bit(64)::bigint) <= 1)
               from postrider.events";
    assert!(one::<bool>(&e.sql, sql).await);
}
