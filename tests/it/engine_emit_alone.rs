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
