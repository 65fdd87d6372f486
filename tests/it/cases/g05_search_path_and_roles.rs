//! G05: functions that work with one search_path or one role only, and dumps that cannot be restored.

use std::path::PathBuf;

use tokio::process::Command;

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::engine::{Engine, count, one, refused, run};
use crate::fixtures::http::Reply;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::endpoint;
use crate::fixtures::worker::{LIMIT, Worker};
use crate::fixtures::world::World;

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

/// Runs one of Postgres' client programs: beside the server's, or in the path.
async fn client_program(name: &str, args: &[&str]) {
    let beside = postrider::embedded::find().unwrap().join(name);
    let program = if beside.exists() {
        beside
    } else {
        PathBuf::from(name)
    };
    let done = Command::new(program).args(args).output().await.unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{name}: {said}");
}

/// What must be the same before a dump and after its restore, and moves when a trigger fires.
const STATE: &str = "select jsonb_build_array(
    (select jsonb_agg(s order by s.endpoint_id) from postrider.endpoint_state s),
    (select jsonb_agg(a order by a.id) from postrider.alerts a),
    (select jsonb_agg(p order by p.event_id, p.endpoint_id) from postrider.pending p),
    (select jsonb_agg(f order by f.event_id, f.endpoint_id) from postrider.finished f),
    (select jsonb_agg(o order by o.event_id) from postrider.outbox o))::text";

/// Deliveries done, owed, failed onto the ladder and not yet fanned out: restored as they were, nothing sent by
/// it, and a worker goes on from there.
#[tokio::test]
async fn g05_a_dump_of_a_working_database_is_restored_and_goes_on() {
    let world = World::new(|request, nth| match request.path.as_str() {
        "/bad" if nth.of_path <= 12 => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    world
        .quick_policy(
            "laddered",
            r#"{"backoff_base": "10 ms", "backoff_cap": "10 ms", "max_attempts": 100}"#,
        )
        .await;
    world.endpoint("/good", "event_types => '{a}'").await;
    let bad = world
        .endpoint("/bad", "event_types => '{b}', policy => 'laddered'")
        .await;
    world
        .run(
            "insert into postrider.policy_rungs (policy, rung, failures, pause)
             values ('laddered', 1, 10, interval '1 h')",
        )
        .await;
    let worker = Worker::start(&world.database, |_| {});
    let sent = world.emit("a").await;
    world.arrival("/good", sent).await;
    let failing = world.emit("b").await;
    let paused = format!(
        "select exists (select from postrider.endpoint_state where endpoint_id = {bad} and rung = 1)"
    );
    crate::fixtures::eventually(LIMIT, async || {
        world.one::<bool>(&paused, &[]).await.then_some(())
    })
    .await;
    worker.stop().await;
    let owed = world.emit_many("a", 20).await;
    let before: String = world.one(STATE, &[]).await;
    let requests = world.receiver.requests().len();

    let restored = TestDb::empty().await;
    let file = format!("{}/{}.dump", env!("CARGO_TARGET_TMPDIR"), restored.name());
    let file = file.as_str();
    client_program("pg_dump", &["-Fc", "-f", file, "-d", world.url()]).await;
    client_program(
        "pg_restore",
        &["--exit-on-error", "-d", restored.url(), file],
    )
    .await;
    std::fs::remove_file(file).unwrap();
    let sql = restored.connect().await;
    assert_eq!(one::<String>(&sql, STATE).await, before);
    assert_eq!(world.receiver.requests().len(), requests);

    let _worker = Worker::start(&restored.database(), |_| {});
    for event in owed {
        world.arrival("/good", event).await;
    }
    run(
        &sql,
        &format!(
            "update postrider.endpoint_state
                set ladder_paused_until = clock_timestamp(), next_claim_at = clock_timestamp()
              where endpoint_id = {bad}"
        ),
    )
    .await;
    let owed = format!("select count(*) from postrider.pending where event_id = '{failing}'");
    crate::fixtures::eventually(LIMIT, async || {
        (one::<i64>(&sql, &owed).await == 0).then_some(())
    })
    .await;
    assert_once_each(&world.receiver.requests_to("/good"), 21);
}
