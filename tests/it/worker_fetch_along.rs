//! A worker with little to do fans out and fetches in one round trip, in transactions of their own.

use std::time::Duration;

use postrider::connect::Database;
use postrider::db::{Db, Fetched, WantedRefill};

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::engine::{Engine, count, one, run};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::proxy::Proxy;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

/// Neither a poll nor the end of the lease comes to help.
const NEVER: Duration = Duration::from_secs(600);

fn db(url: &str) -> Db {
    Db::new(Database::new(Some(url)).unwrap().pool(1).unwrap())
}

fn refills(endpoints: &[i64]) -> Vec<WantedRefill> {
    let of = |endpoint: &i64| WantedRefill {
        endpoint_id: *endpoint,
        limit: 10,
    };
    endpoints.iter().map(of).collect()
}

fn bodies(fetched: &[Fetched]) -> Vec<(i64, usize)> {
    let of = |f: &Fetched| (f.endpoint_id, f.deliveries.len());
    let mut bodies: Vec<_> = fetched.iter().map(of).collect();
    bodies.sort_unstable();
    bodies
}

#[tokio::test]
async fn it_brings_what_is_due_and_no_more() {
    let e = Engine::new().await;
    let mut endpoints = Vec::new();
    for types in ["{a.b}", "{a.b}", "{a.b}", "{c.d}"] {
        endpoints.push(e.endpoint(&format!("event_types => '{types}'")).await);
    }
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    e.emit("'c.d', '{}'").await;
    e.fan_out().await;
    assert_eq!(e.claim(worker, 10).await.len(), 4);
    for endpoint in &endpoints {
        let owed = format!("select event_id from postrider.pending where endpoint_id = {endpoint}");
        let event = one(&e.sql, &owed).await;
        e.report(worker, &[e.attempt(event, *endpoint, 200)]).await;
    }
    let paused = endpoints[2];
    run(
        &e.sql,
        &format!("select postrider.pause_endpoint({paused})"),
    )
    .await;
    let db = db(e.db.url());
    // Two bodies that are not within the bound together, and one of them not alone.
    let large = format!("'a.b', to_json(repeat('x', {}))", 300 << 10);
    e.emit(&large).await;
    let (fan_out, fetched) = db.fan_out(worker, &refills(&endpoints), 256 << 10).await;
    assert_eq!(fan_out.unwrap().deliveries, 3);
    let fetched = fetched.unwrap();
    assert_eq!(
        bodies(&fetched),
        [(endpoints[0], 1), (endpoints[1], 0), (paused, 0)]
    );
    let settings = |n: usize| fetched[n].settings.as_ref().unwrap().as_ref().unwrap();
    let second = fetched.iter().position(|f| f.endpoint_id == endpoints[1]);
    assert_eq!(settings(second.unwrap()).due, 1);
    let third = fetched.iter().position(|f| f.endpoint_id == paused);
    assert!(settings(third.unwrap()).paused_ms.is_some());
}

#[tokio::test]
async fn whoever_does_not_read_the_bodies_holds_up_nobody() {
    let e = Engine::new().await;
    let (endpoint, worker) = (e.endpoint("").await, e.worker().await);
    let first = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
    e.report(worker, &[e.attempt(first, endpoint, 200)]).await;
    let proxy = Proxy::start(e.db.url()).await;
    proxy.read_no_answer_to("postrider.fan_out(");
    // No socket's buffers hold so much.
    e.emit("'a.b', to_json(repeat('x', 4000000))").await;
    let deaf = db(proxy.url());
    let call =
        tokio::spawn(async move { deaf.fan_out(worker, &refills(&[endpoint]), 8 << 20).await.0 });
    eventually(LIMIT, async || {
        (count(&e.sql, "postrider.outbox").await == 0).then_some(())
    })
    .await;
    e.emit("'a.b', '{}'").await;
    let (events, deliveries, _, busy, _) = e.step(e.worker().await).await;
    assert_eq!((events, deliveries, busy), (1, 1, false));
    run(
        &e.sql,
        &format!("set lock_timeout = '2s'; select postrider.pause_endpoint({endpoint})"),
    )
    .await;
    assert!(!call.is_finished());
    call.abort();
}

#[tokio::test]
async fn a_fetch_that_fails_undoes_no_fan_out() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "").await;
    world.worker_with(|o| o.poll_interval = NEVER);
    let first = world.emit("a").await;
    world.arrival("/in", first).await;
    world.settled().await;
    world
        .run(
            "create or replace function postrider.fetch_due(worker uuid, endpoint_ids bigint[], limits integer[], max_bytes bigint)
             returns table (endpoint_id bigint, settings jsonb, event_id uuid, run integer, number integer,
                            event_type text, body text, expires_in_ms bigint, overdue_ms bigint)
             language plpgsql as $$ begin raise exception 'unreadable'; end $$",
        )
        .await;
    for _ in 0..3 {
        let event = world.emit("a").await;
        world.arrival("/in", event).await;
        world.settled().await;
    }
    assert_once_each(&world.receiver.requests_to("/in"), 4);
}
