//! G06: a worker is killed, and what it had in hand stays "in flight" for ever, most surely when it is started
//! again under the same name.

use std::time::Instant;

use nix::sys::signal::Signal;
use uuid::Uuid;

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::engine::{Engine, all};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::process::Process;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const LEASE: &[&str] = &["--lease", "3s", "--name", "the-same"];

async fn workers(world: &World) -> Vec<Uuid> {
    let sql = "select coalesce(array_agg(id), '{}') from postrider.workers";
    world.one(sql, &[]).await
}

/// Kills it, and starts it again with the same name, host and arguments. Returns when the new one was there.
async fn kill_and_restart(world: &World, worker: &Process) -> (Process, Instant) {
    let before = workers(world).await;
    worker.signal(Signal::SIGKILL);
    let again = world.process(LEASE);
    eventually(LIMIT, async || {
        let now = workers(world).await;
        now.iter().any(|id| !before.contains(id)).then_some(())
    })
    .await;
    (again, Instant::now())
}

#[tokio::test]
async fn g06_a_killed_workers_request_is_made_again_after_its_lease() {
    let world = World::new(|_, nth| match nth.of_path {
        1 => Reply::Hang,
        _ => Reply::status(200),
    })
    .await;
    let endpoint = world.endpoint("/in", "").await;
    let first = world.process(LEASE);
    let event = world.emit("a").await;
    world.arrived("/in", 1).await;
    let killed = Instant::now();
    let (_second, back) = kill_and_restart(&world, &first).await;
    let requests = world.arrived("/in", 2).await;
    // The lease, a beat, the poll interval and a second.
    let took = requests[1].arrived.duration_since(back);
    assert!(took < ms(3000 + 500 + 1000 + 1000), "{took:?}");
    let took = requests[1].arrived.duration_since(killed);
    assert!(took > ms(2400), "before the lease was over: {took:?}");
    assert_eq!(requests[0].id(), requests[1].id());
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!((done.attempts, done.failures), (1, 0));
    assert_eq!(world.receiver.requests().len(), 2);
    // And what comes next has no delay left over.
    let next = world.emit("a").await;
    let before = Instant::now();
    let request = world.arrival("/in", next).await;
    assert!(request.arrived.saturating_duration_since(before) < ms(1000));
}

/// Whatever the killed one had: a request open, deliveries in memory behind it, a retry that waits, an endpoint
/// with nothing to do. All of it goes on, and only what was open is sent again.
#[tokio::test]
async fn g06_everything_a_killed_worker_owned_goes_on() {
    let world = World::new(|request, nth| match (request.path.as_str(), nth.of_path) {
        ("/open", 1) => Reply::Hang,
        ("/retry", 1) => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    world
        .quick_policy("soon", r#"{"backoff_base": "2 s", "backoff_cap": "2 s"}"#)
        .await;
    world
        .endpoint("/open", "concurrency => 1, event_types => '{many}'")
        .await;
    let retry = world
        .endpoint("/retry", "policy => 'soon', event_types => '{one}'")
        .await;
    world.endpoint("/idle", "event_types => '{later}'").await;
    let first = world.process(LEASE);
    let later = world.emit("later").await;
    world.arrival("/idle", later).await;
    let one = world.emit("one").await;
    let failed = "select failures = 1 from postrider.pending where event_id = $1";
    eventually(LIMIT, async || {
        let row = world.sql.query_opt(failed, &[&one]).await.unwrap()?;
        row.get::<_, bool>(0).then_some(())
    })
    .await;
    world.emit_many("many", 5).await;
    world.arrived("/open", 1).await;
    let (_second, _) = kill_and_restart(&world, &first).await;
    let later = world.emit("later").await;
    world.settled().await;
    world.arrival("/idle", later).await;
    let open = world.receiver.requests_to("/open");
    assert_eq!(open.len(), 6, "the open one twice, the others once");
    assert_once_each(&open[1..], 5);
    let done = world.wait_for_status(one, retry, "delivered").await;
    assert_eq!((done.attempts, done.failures), (2, 1));
    assert_eq!(world.receiver.requests_to("/retry").len(), 2);
}

/// A name can repeat, an id cannot: a peer of the same name ends the old lease, and its own is another.
#[tokio::test]
async fn g06_no_name_hides_an_orphan() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    e.emit("'a', '{}'").await;
    e.fan_out().await;
    let mut old = e.worker().await;
    assert_eq!(e.claim(old, 1).await, [endpoint]);
    for _ in 0..3 {
        let again = e.worker().await;
        assert_ne!(old, again);
        assert!(e.claim(again, 1).await.is_empty(), "the lease is not over");
        let sql = format!(
            "select h.peer from postrider.workers w
              cross join postrider.heartbeat('{again}', array[w.id], array[w.beat]) h where w.id = '{old}'"
        );
        let live: Vec<Uuid> = all(&e.sql, &sql).await;
        assert_eq!(live, [again]);
        e.pass(3600).await;
        assert_eq!(e.claim(again, 1).await, [endpoint]);
        let found = e.fetch(again, &[endpoint], 10, &[], 1_000_000).await;
        assert_eq!(found.len(), 1, "{found:?}");
        old = again;
    }
}
