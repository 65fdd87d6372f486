//! emit_event: what it takes, what it refuses, and the ids it gives.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, one, refused, run};

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
