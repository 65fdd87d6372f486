//! G05: functions that work with one search_path or one role only, and dumps that cannot be restored.

use crate::fixtures::engine::{Engine, count, one, refused, run};
use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::endpoint;

#[tokio::test]
async fn g05_it_needs_no_search_path_and_no_right_but_execute() {
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
    assert_eq!(count(&e.sql, "postrider.events").await, 2);
    assert_eq!(count(&e.sql, "postrider.outbox").await, 2);
    drop(app);
    run(&e.sql, &format!("drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn g05_an_emitter_emits_from_a_trigger_and_sees_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    endpoint(&client, "patient").await;
    run(
        &client,
        "create table public.invoices (id int);
         grant insert on public.invoices to postrider_emitter;
         create function public.invoice_made() returns trigger language plpgsql as $$
         begin
             perform postrider.emit_event('invoice.made', jsonb_build_object('id', new.id));
             return new;
         end $$;
         create trigger made after insert on public.invoices for each row execute function public.invoice_made();",
    )
    .await;
    run(&client, "set session authorization postrider_emitter").await;
    run(
        &client,
        "set search_path to ''; insert into public.invoices values (1)",
    )
    .await;
    run(
        &client,
        "select postrider.emit_event('a', '{}'::json), postrider.emit_event('a', '{}'::text)",
    )
    .await;
    for sql in [
        "select from postrider.events",
        "select from postrider.endpoint_secrets",
        "select from postrider.outbox",
        "select from postrider.deliveries",
        "select postrider.create_endpoint('https://a.example/')",
        "select postrider.rotate_secret(1)",
        "select postrider._emit('a', '{}', 'default', null, null, null)",
        "select postrider._new_secret()",
    ] {
        assert_eq!(refused(&client, sql).await, "42501", "{sql}");
    }
    run(&client, "reset session authorization").await;
    let sql = "select count(*) from postrider.outbox";
    assert_eq!(one::<i64>(&client, sql).await, 3);
}
