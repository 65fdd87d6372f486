//! G01: an event of a transaction that was rolled back reaches the receiver, or one goes out before its commit.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, run};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::world::World;

const EMIT: &str = "select postrider.emit_event('a', '{}'::text)";

async fn rows(e: &Engine) -> (i64, i64) {
    (
        count(&e.sql, "postrider.events").await,
        count(&e.sql, "postrider.outbox").await,
    )
}

#[tokio::test]
async fn g01_what_is_rolled_back_never_was() {
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
async fn g01_a_savepoint_takes_only_its_own_back() {
    let e = Engine::new().await;
    let sql = "begin; savepoint s; select postrider.emit_event('a.one', '{}'); rollback to s;
               select postrider.emit_event('a.two', '{}'); commit";
    run(&e.sql, sql).await;
    let types: Vec<String> = all(&e.sql, "select event_type from postrider.events").await;
    assert_eq!(types, ["a.two"]);
    assert_eq!(rows(&e).await, (1, 1));
}

#[tokio::test]
async fn g01_a_block_undone_by_its_exception_handler_emits_nothing() {
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
async fn g01_a_session_killed_before_its_commit_emits_nothing() {
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
async fn g01_nothing_of_what_was_rolled_back_is_ever_sent() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    world.worker();
    world.worker();
    let mut wanted = vec![world.emit("before").await];
    world.arrival("/in", wanted[0]).await;

    // A rolled-back transaction.
    let sql = &world.sql;
    sql.batch_execute("begin").await.unwrap();
    world.emit("rolled.back").await;
    sql.batch_execute("rollback").await.unwrap();
    // A rolled-back savepoint.
    sql.batch_execute("begin; savepoint s").await.unwrap();
    world.emit("savepoint").await;
    sql.batch_execute("rollback to s").await.unwrap();
    wanted.push(world.emit("kept").await);
    sql.batch_execute("commit").await.unwrap();
    // A block whose handler swallows an error.
    sql.batch_execute(
        "do $$ begin
             begin
                 perform postrider.emit_event('swallowed', '{}'::text);
                 perform 1 / 0;
             exception when division_by_zero then null;
             end;
         end $$",
    )
    .await
    .unwrap();
    // A session killed between emit and commit.
    let other = world.connect().await;
    other.batch_execute("begin").await.unwrap();
    other.query_one(EMIT, &[]).await.unwrap();
    let pid: i32 = other
        .query_one("select pg_backend_pid()", &[])
        .await
        .unwrap()
        .get(0);
    let killed: bool = world
        .one("select pg_terminate_backend($1, 5000)", &[&pid])
        .await;
    assert!(killed);

    // What was emitted later has arrived, so what was emitted before would have.
    wanted.push(world.emit("after").await);
    world.arrival("/in", wanted[2]).await;
    world.settled().await;
    let ids: Vec<String> = world.receiver.requests().iter().map(|r| r.id()).collect();
    let wanted: Vec<String> = wanted.iter().map(Uuid::to_string).collect();
    assert_eq!(ids, wanted);
    let events: i64 = world
        .one("select count(*) from postrider.events", &[])
        .await;
    assert_eq!(events, 3);
}

#[tokio::test]
async fn g01_nothing_is_sent_before_the_commit() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    world.worker();
    let open = world.connect().await;
    open.batch_execute("begin").await.unwrap();
    let early: Uuid = open.query_one(EMIT, &[]).await.unwrap().get(0);
    for _ in 0..3 {
        let late = world.emit("late").await;
        world.arrival("/in", late).await;
    }
    let arrived = world.receiver.requests();
    assert!(arrived.iter().all(|r| r.id() != early.to_string()));
    let before = std::time::Instant::now();
    open.batch_execute("commit").await.unwrap();
    let request = world.arrival("/in", early).await;
    assert!(request.arrived > before);
}
