//! emit_event: an event exists if and only if its transaction committed, and not before its time.

use uuid::Uuid;

use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

const EMIT: &str = "select postrider.emit_event('a', '{}'::text)";

#[tokio::test]
async fn nothing_of_what_was_rolled_back_is_ever_sent() {
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
async fn nothing_is_sent_before_the_commit() {
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

#[tokio::test]
async fn deliver_at_is_waited_for_and_not_overslept() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "").await;
    // The poll is no help: the worker itself must know when.
    world.worker_with(|o| o.poll_interval = ms(30_000));
    let sql = "select postrider.emit_event('a', '{}'::text, deliver_at => clock_timestamp() + interval '2 s')";
    let before = std::time::Instant::now();
    let event: Uuid = world.one(sql, &[]).await;
    let after = std::time::Instant::now();
    let now = world.emit("b").await;
    world.arrival("/in", now).await;
    let state = world.delivery(event, endpoint).await.map(|d| d.status);
    assert_eq!(state.as_deref(), Some("pending"));
    let request = world.arrival("/in", event).await;
    assert!(request.arrived >= before + ms(2000) - ms(2));
    assert!(request.arrived < after + ms(3000));
}

#[tokio::test]
async fn past_its_time_to_live_it_ends_expired_and_is_not_sent() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let short = r#"{"time_to_live": "1 s"}"#;
    world.quick_policy("short", short).await;
    let endpoint = world.endpoint("/in", "policy => 'short'").await;
    world.worker();
    let first = world.emit("a").await;
    world.arrival("/in", first).await;
    let pause =
        format!("select postrider.pause_endpoint({endpoint}, clock_timestamp() + interval '2 s')");
    world.run(&pause).await;
    let events = world.emit_many("a", 5).await;
    for event in &events {
        let ended = world.wait_for_status(*event, endpoint, "expired").await;
        assert_eq!(ended.attempts, 0);
        assert!(ended.reason.is_some());
    }
    // It counts from deliver_at where given: this one has its second yet.
    let sql = "select postrider.emit_event('a', '{}'::text, deliver_at => clock_timestamp() + interval '1500 ms')";
    let later: Uuid = world.one(sql, &[]).await;
    world.arrival("/in", later).await;
    let sent: Vec<String> = world.receiver.requests().iter().map(|r| r.id()).collect();
    assert_eq!(sent, [first.to_string(), later.to_string()]);
}
