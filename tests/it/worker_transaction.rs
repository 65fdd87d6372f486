//! emit_event: an event is sent not before its time, and not after.

use uuid::Uuid;

use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

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
