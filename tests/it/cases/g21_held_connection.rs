//! G21: no connection to the database is held while a request is open, so slow receivers exhaust no pool.

use std::time::Instant;

use uuid::Uuid;

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Fifty slow requests are open, and three connections to the database are enough: none is held meanwhile.
#[tokio::test]
async fn g21_no_connection_is_held_during_a_request() {
    let mut world = World::new(|request, _| match request.path.as_str() {
        "/fast" => Reply::status(200),
        _ => Reply::status(200).after(ms(2000)),
    })
    .await;
    for n in 0..50 {
        let settings = "event_types => '{slow}', concurrency => 1";
        world.endpoint(&format!("/slow{n}"), settings).await;
    }
    world.endpoint("/fast", "event_types => '{fast}'").await;
    world.worker_with(|o| o.pool_size = 3);
    world.emit_many("slow", 2).await;
    world.receiver.wait_for(LIMIT, |all| all.len() >= 50).await;
    let watched = async {
        let sql = "select count(*) from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()
                      and state like 'idle in transaction%' and clock_timestamp() - state_change > interval '1 s'";
        while world.receiver.requests().len() < 105 {
            assert_eq!(world.one::<i64>(sql, &[]).await, 0);
            tokio::time::sleep(ms(20)).await;
        }
    };
    let served = async {
        for _ in 0..5 {
            let before = Instant::now();
            let event = world.emit("fast").await;
            let request = world.arrival("/fast", event).await;
            let took = request.arrived.duration_since(before);
            assert!(took < ms(1000), "{took:?}");
            tokio::time::sleep(ms(200)).await;
        }
    };
    tokio::time::timeout(LIMIT, async { tokio::join!(watched, served) })
        .await
        .expect("not all were sent");
    world.settled().await;
}

/// The session that listens and the one that beats are none of the pool's: with all of it busy and the pool as
/// small as can be, workers still hear and keep their lease.
#[tokio::test]
async fn g21_listening_and_beating_take_nothing_from_the_pool() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "").await;
    world.worker_with(|o| {
        o.pool_size = 1;
        o.lease = ms(1200);
        o.poll_interval = ms(60_000);
    });
    let first = world.emit("a").await;
    world.arrival("/in", first).await;
    world.wait_for_status(first, endpoint, "delivered").await;
    let worker = "select array_agg(id) from postrider.workers";
    let before: Vec<Uuid> = world.one(worker, &[]).await;
    // Its only connection waits in a call, for longer than a lease.
    let blocker = world.connect().await;
    let block = "begin; lock table postrider.outbox in access exclusive mode";
    blocker.batch_execute(block).await.unwrap();
    world.run("select pg_notify('postrider', '')").await;
    let waits = "select count(*) from pg_stat_activity
                  where datname = current_database() and wait_event_type = 'Lock' and query like '%fan_out%'";
    eventually(LIMIT, async || {
        (world.one::<i64>(waits, &[]).await == 1).then_some(())
    })
    .await;
    let listening = "select count(*) from pg_stat_activity
                      where datname = current_database() and query ilike 'listen %' and wait_event_type <> 'Lock'";
    assert_eq!(world.one::<i64>(listening, &[]).await, 1);
    tokio::time::sleep(ms(2500)).await;
    let beats =
        "select bool_and(seen_at > clock_timestamp() - interval '1200 ms') from postrider.workers";
    assert!(world.one::<bool>(beats, &[]).await);
    blocker.batch_execute("commit").await.unwrap();
    let second = world.emit("a").await;
    world.arrival("/in", second).await;
    assert_eq!(world.one::<Vec<Uuid>>(worker, &[]).await, before);
}
