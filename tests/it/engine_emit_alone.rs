//! emit_event needs nobody and waits for nobody.

use crate::fixtures::engine::{Engine, count, refused, run};

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

#[tokio::test]
async fn it_needs_no_search_path_and_no_right_but_execute() {
    let e = Engine::new().await;
    let role = format!("{}_app", e.db.name());
    let setup = format!(
        "create role {role} login password '{role}'; grant usage on schema postrider to {role};
         grant execute on function postrider.emit_event(text, text, text, text, timestamptz, bigint) to {role};
         create table public.invoices (id int); grant insert on public.invoices to {role}; grant usage on schema public to {role};
         create function public.enqueue() returns trigger language plpgsql as
             $$ begin perform postrider.emit_event('a.trigger', '{{}}'); return null; end $$;
         create trigger enqueue after insert on public.invoices for each row execute function public.enqueue()"
    );
    run(&e.sql, &setup).await;
    let app = postrider::connect::Database::new(Some(&e.db.url_as(&role)))
        .unwrap()
        .connect()
        .await
        .unwrap();
    run(
        &app,
        "set search_path = ''; select postrider.emit_event('a.b', '{}')",
    )
    .await;
    run(
        &app,
        "begin; insert into public.invoices values (1); commit",
    )
    .await;
    for private in [
        "events",
        "endpoint_secrets",
        "outbox",
        "endpoints",
        "settings",
    ] {
        let sql = format!("select * from postrider.{private}");
        assert_eq!(refused(&app, &sql).await, "42501", "{private}");
    }
    assert_eq!(rows(&e).await, (2, 2));
    drop(app);
    run(&e.sql, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn it_waits_for_no_lock_of_workers_and_operators() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    let holder = e.session().await;
    let hold = format!(
        "begin; select postrider.fan_out('{worker}'); select postrider.claim_endpoints('{worker}', 10);
         select postrider.pause_endpoint({endpoint}); select postrider.update_endpoint({endpoint}, description => 'x');
         select from postrider.endpoints for update; select from postrider.endpoint_state for update;
         select from postrider.workers for update; select from postrider.settings for no key update"
    );
    run(&holder, &hold).await;
    let emit = format!(
        "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{{}}');
         select postrider.emit_event('a.b', '{{}}', endpoint_id => {endpoint})"
    );
    run(&e.session().await, &emit).await;
    run(&holder, "rollback").await;
    // And two emitters wait for neither of them.
    run(
        &holder,
        "begin; select postrider.emit_event('a.b', '{}', idempotency_key => 'one')",
    )
    .await;
    let other = "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{}', idempotency_key => 'two')";
    run(&e.session().await, other).await;
    run(&holder, "commit").await;
}
