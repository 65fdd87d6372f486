//! Postgres crashes while all is running.

use std::sync::Arc;
use std::time::Duration;

use postrider::connect::Database;
use uuid::Uuid;

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Emits until `count` commits are confirmed, whatever happens in between.
async fn emit_through(database: Arc<Database>, count: usize) -> Vec<Uuid> {
    let mut confirmed = Vec::new();
    while confirmed.len() < count {
        let Ok(client) = database.connect().await else {
            tokio::time::sleep(ms(20)).await;
            continue;
        };
        while confirmed.len() < count {
            let sql = "select postrider.emit_event('a', '{}'::text)";
            match client.query_one(sql, &[]).await {
                Ok(row) => confirmed.push(row.get(0)),
                Err(_) => break,
            }
            tokio::time::sleep(ms(5)).await;
        }
    }
    confirmed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_postgres_loses_and_repeats_nothing() {
    let mut world = World::with_server(|_, _| Reply::status(200).after(ms(30))).await;
    world.endpoint("/a", "").await;
    world.endpoint("/b", "concurrency => 2").await;
    world.worker();
    world.worker();
    let emitter = Arc::new(world.database.named("test"));
    let emitting = tokio::spawn(emit_through(emitter, 300));
    let server = world.server.as_ref().unwrap();
    for count in [60, 200] {
        world.receiver.wait_for_count(count, LIMIT).await;
        server.stop_immediate().await.unwrap();
        tokio::time::sleep(ms(300)).await;
        server.resume().await.unwrap();
    }
    let confirmed = tokio::time::timeout(LIMIT * 2, emitting).await;
    let confirmed = confirmed.expect("emitting hangs").unwrap();
    world.sql = world.connect().await;
    world.settled().await;
    let requests = world.receiver.requests();
    for path in ["/a", "/b"] {
        let arrived: Vec<String> = world
            .receiver
            .requests_to(path)
            .iter()
            .map(|r| r.id())
            .collect();
        let lost = confirmed
            .iter()
            .filter(|id| !arrived.contains(&id.to_string()))
            .count();
        assert_eq!(lost, 0, "committed events that did not arrive");
    }
    // The workers outlived it, and with them what they knew: nothing was sent again.
    let events: i64 = world
        .one("select count(*) from postrider.events", &[])
        .await;
    assert_once_each(&requests, 2 * usize::try_from(events).unwrap());
    assert_one_flight(&requests);
    let delivered =
        "select count(*) from postrider.deliveries where status = 'delivered' and attempts = 1";
    assert_eq!(world.one::<i64>(delivered, &[]).await, 2 * events);
}

/// The database is away for longer than the lease: workers stop sending before their lease is over, and come
/// back by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_stops_workers_and_they_return() {
    let mut world = World::with_server(|_, _| Reply::status(200).after(ms(100))).await;
    world.endpoint("/in", "concurrency => 1").await;
    for _ in 0..2 {
        world.worker_with(|o| o.lease = ms(3000));
    }
    world.emit_many("a", 100).await;
    world.receiver.wait_for_count(10, LIMIT).await;
    let server = world.server.as_ref().unwrap();
    server.stop_fast().await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    let before = world.receiver.requests().len();
    assert!(before < 60, "it went on without its lease");
    server.resume().await.unwrap();
    world.sql = world.connect().await;
    world.settled().await;
    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    // Outcomes were kept and reported under the old id: nothing that was answered is sent again.
    assert_once_each(&requests, 100);
}

/// The functions refuse it, and the worker then says its own.
#[tokio::test]
async fn a_database_with_another_default_isolation_is_served() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "").await;
    let other = "do $$ begin execute format('alter database %I set default_transaction_isolation to serializable',
                                            current_database()); end $$";
    world.run(other).await;
    world.worker();
    let event = world.emit("a").await;
    world.wait_for_status(event, endpoint, "delivered").await;
}
