//! G03: NOTIFY breaks the application's commit by its size, or slows it when many commit at once.

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{Client, Notification};

use crate::fixtures::engine::{Engine, heard, one, run};

const EMIT: &str = "select postrider.emit_event('a.b', '{}')";

async fn listening(e: &Engine) -> (Client, UnboundedReceiver<Notification>) {
    let (listener, hints) = e.db.database().connect_listening().await.unwrap();
    run(&listener, "listen postrider").await;
    (listener, hints)
}

#[tokio::test]
async fn g03_payloads_of_any_size_pass() {
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
async fn g03_ten_thousand_emits_of_one_transaction_are_one_notification() {
    let e = Engine::new().await;
    let (listener, mut hints) = listening(&e).await;
    let sql = "begin; select postrider.emit_event('a.b', '{}') from generate_series(1, 10000)";
    run(&e.sql, sql).await;
    assert!(
        heard(&listener, &mut hints).await.is_empty(),
        "sent before the commit"
    );
    run(&e.sql, "commit").await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    run(
        &e.sql,
        "begin; select postrider.emit_event('a.b', '{}'); rollback",
    )
    .await;
    assert!(heard(&listener, &mut hints).await.is_empty());
    run(&e.sql, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
}

#[tokio::test]
async fn g03_it_is_switched_off_for_a_transaction_a_session_and_the_installation() {
    let e = Engine::new().await;
    let (listener, mut hints) = listening(&e).await;
    let s = e.session().await;
    run(
        &s,
        &format!("begin; set local postrider.notify = off; {EMIT}; commit"),
    )
    .await;
    assert!(heard(&listener, &mut hints).await.is_empty());
    run(&s, &format!("begin; {EMIT}; commit")).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    run(&s, "set postrider.notify = off").await;
    run(&s, EMIT).await;
    assert!(heard(&listener, &mut hints).await.is_empty());
    run(&s, "reset postrider.notify").await;
    run(&s, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    run(&e.sql, "update postrider.settings set notify = false").await;
    let endpoint = e.endpoint("").await;
    run(&s, EMIT).await;
    // Checked at the end of each statement, not at COMMIT.
    let at_once = format!("begin; set constraints all immediate; {EMIT}; commit");
    run(&s, &at_once).await;
    e.fan_out().await;
    run(&s, &format!("select postrider.pause_endpoint({endpoint})")).await;
    assert!(heard(&listener, &mut hints).await.is_empty());
}
