//! The wake-up: a hint at most once per transaction, which holds nobody up.

use tokio::sync::mpsc::UnboundedReceiver;
use tokio_postgres::{Client, Notification};

use crate::fixtures::engine::{Engine, count, heard, one, refused, run};

const EMIT: &str = "select postrider.emit_event('a.b', '{}')";

async fn listening(e: &Engine) -> (Client, UnboundedReceiver<Notification>) {
    let (listener, hints) = e.db.database().connect_listening().await.unwrap();
    run(&listener, "listen postrider").await;
    (listener, hints)
}

#[tokio::test]
async fn an_open_transaction_silences_nobody() {
    let e = Engine::new().await;
    let (listener, mut hints) = listening(&e).await;
    let open = e.session().await;
    run(&open, &format!("begin; {EMIT}; {EMIT}")).await;
    run(&e.sql, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    // One that checks its constraints early may take the gate, for itself alone and until it ends.
    run(&open, "set constraints all immediate").await;
    run(&open, "commit").await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    run(&e.sql, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
}

#[tokio::test]
async fn switched_off_it_allows_prepare_transaction() {
    let e = Engine::new().await;
    let (listener, mut hints) = listening(&e).await;
    // Names of prepared transactions are the server's, not the database's.
    let name = format!("{}_prepared", e.db.name());
    assert_eq!(
        refused(
            &e.sql,
            &format!("begin; {EMIT}; prepare transaction '{name}'")
        )
        .await,
        "0A000"
    );
    run(&e.sql, "rollback").await;

    let s = e.session().await;
    run(
        &s,
        &format!("begin; set local postrider.notify = off; {EMIT}; prepare transaction '{name}'"),
    )
    .await;
    // The session now has '' for the switch, and its next commits work and are heard.
    run(&s, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    // What is prepared holds no gate: others are heard.
    run(&e.sql, EMIT).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    run(&e.sql, &format!("commit prepared '{name}'")).await;
    assert!(heard(&listener, &mut hints).await.is_empty());
    assert_eq!(count(&e.sql, "postrider.outbox").await, 3);
}

#[tokio::test]
async fn a_restricted_role_commits() {
    let e = Engine::new().await;
    let (listener, mut hints) = listening(&e).await;
    let role = format!("{}_app", e.db.name());
    run(
        &e.sql,
        &format!("create role {role} login password '{role}'; grant postrider_emitter to {role}"),
    )
    .await;
    let app = postrider::connect::Database::new(Some(&e.db.url_as(&role)))
        .unwrap()
        .connect()
        .await
        .unwrap();
    run(&app, &format!("begin; {EMIT}; commit")).await;
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    drop(app);
    run(&e.sql, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn fan_out_tells_every_owner_concerned_once() {
    let e = Engine::new().await;
    let own = [e.endpoint("").await, e.endpoint("").await];
    let (me, peer) = (e.worker().await, e.worker().await);
    let (listener, mut hints) = listening(&e).await;
    // Both endpoints unowned: one hint for whoever claims.
    run(
        &e.sql,
        "begin; set local postrider.notify = off; select postrider.emit_event('a.b', '{}'); commit",
    )
    .await;
    assert_eq!(e.step(me).await.4, Vec::<i64>::new());
    assert_eq!(heard(&listener, &mut hints).await, [""]);
    assert_eq!(e.claim(me, 1).await.len(), 1);
    assert_eq!(e.claim(peer, 5).await.len(), 1);
    let third = e.endpoint("").await;
    let mine: i64 = one(
        &e.sql,
        &format!("select endpoint_id from postrider.endpoint_state where owner = '{me}'"),
    )
    .await;
    assert!(own.contains(&mine));
    heard(&listener, &mut hints).await;

    let quiet = "begin; set local postrider.notify = off; select postrider.emit_event('a.b', '{}') from generate_series(1, 5); commit";
    run(&e.sql, quiet).await;
    let (events, deliveries, more, busy, due) = e.step(me).await;
    assert_eq!((events, deliveries, more, busy), (5, 15, false, false));
    assert_eq!(due, [mine], "due names the caller's own endpoints only");
    let mut payloads = heard(&listener, &mut hints).await;
    payloads.sort();
    // The peer by its id, once; the unowned endpoint by an empty one; nothing for the caller itself.
    assert_eq!(payloads, [String::new(), peer.to_string()]);
    assert!(e.state::<bool>(third, "next_claim_at is not null").await);

    // Marked though owned: who gives it up finds the mark.
    assert!(
        e.state::<bool>(mine, "next_claim_at <= postrider.now()")
            .await
    );
    // Later deliveries tell nobody.
    run(&e.sql, "set postrider.notify = off").await;
    e.emit("'a.b', '{}', deliver_at => now() + interval '1 hour'")
        .await;
    run(&e.sql, "reset postrider.notify").await;
    assert!(e.step(me).await.4.is_empty());
    assert!(heard(&listener, &mut hints).await.is_empty());
}
