//! Failover to a synchronous standby while deliveries run: workers find it by themselves, nothing that was
//! committed is lost, and the guarantees hold across it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postrider::connect::Database;
use uuid::Uuid;

use crate::fixtures::arrivals::{assert_one_flight, assert_pace};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::pair::Pair;
use crate::fixtures::postgres::set_clock_offset;
use crate::fixtures::receiver::Recorded;
use crate::fixtures::turns::Turn;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const PAUSE: Duration = Duration::from_secs(5);

/// Emits one event after the other, whatever happens, and notes those whose commit was answered.
async fn emit(database: Database, committed: Arc<Mutex<Vec<Uuid>>>) {
    loop {
        let Ok(client) = database.connect().await else {
            tokio::time::sleep(ms(50)).await;
            continue;
        };
        let sql = "select postrider.emit_event('a', '{}'::jsonb)";
        while let Ok(row) = client.query_one(sql, &[]).await {
            committed.lock().unwrap().push(row.get(0));
            tokio::time::sleep(ms(15)).await;
        }
    }
}

fn count(committed: &Mutex<Vec<Uuid>>) -> usize {
    committed.lock().unwrap().len()
}

async fn fails_over(clock: f64) {
    let _turn = Turn::shared().await;
    let pair = Pair::start().await;
    let mut world = World::on(pair.url(), |request, nth| match request.path.as_str() {
        "/limited" if nth.of_path == 1 => Reply::status(429).header("Retry-After", PAUSE.as_secs()),
        _ => Reply::status(200).after(ms(30)),
    })
    .await;
    let mut endpoints = vec![
        world.endpoint("/in", "concurrency => 3").await,
        world.endpoint("/paced", "rate => 40, burst => 4").await,
    ];
    if clock == 0.0 {
        endpoints.push(world.endpoint("/limited", "concurrency => 1").await);
    }
    world.worker();
    let process = world.process(&[]);
    let workers = "select array_agg(id order by id) from postrider.workers";
    eventually(LIMIT, async || {
        let found: Option<Vec<Uuid>> = world.one(workers, &[]).await;
        (found?.len() == 2).then_some(())
    })
    .await;
    let before: Vec<Uuid> = world.one(workers, &[]).await;

    let committed = Arc::new(Mutex::new(Vec::new()));
    let emitting = tokio::spawn(emit(world.database.clone(), Arc::clone(&committed)));
    world.arrived("/paced", 50).await;
    // What is known to be delivered, as of a moment before the crash.
    let known = world
        .sql
        .query("select event_id, endpoint_id from postrider.finished", &[])
        .await;
    pair.kill_primary();
    let killed = Instant::now();
    let known: Vec<(Uuid, i64)> = known
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1)))
        .collect();
    assert!(!known.is_empty());
    let session = pair.promote().await;
    if clock != 0.0 {
        set_clock_offset(&session, clock).await;
    }
    let promoted = killed.elapsed();
    let so_far = count(&committed);
    eventually(LIMIT, async || {
        (count(&committed) > so_far + 50).then_some(())
    })
    .await;
    emitting.abort();
    world.sql = world.connect().await;
    world.settled().await;

    let committed = committed.lock().unwrap().clone();
    let lost = "select count(*) from unnest($1::uuid[]) e (id), unnest($2::bigint[]) n (id)
                where not exists (select from postrider.finished f where f.event_id = e.id and f.endpoint_id = n.id
                                     and f.status = 'delivered')";
    assert_eq!(world.one::<i64>(lost, &[&committed, &endpoints]).await, 0);
    let requests = world.receiver.requests();
    let mut arrivals: HashMap<(String, String), usize> = HashMap::new();
    for request in requests.iter().filter(|r| r.status == Some(200)) {
        *arrivals
            .entry((request.path.clone(), request.id()))
            .or_default() += 1;
    }
    let paths = ["/in", "/paced", "/limited"];
    for event in &committed {
        for path in &paths[..endpoints.len()] {
            assert!(
                arrivals.contains_key(&((*path).to_owned(), event.to_string())),
                "{path} {event}"
            );
        }
    }
    for (event, endpoint) in known {
        let path = paths[endpoints.iter().position(|e| *e == endpoint).unwrap()];
        assert_eq!(
            arrivals[&(path.to_owned(), event.to_string())],
            1,
            "it was known to be delivered"
        );
    }
    let again = arrivals.values().filter(|n| **n > 1).count();
    let first = requests
        .iter()
        .find(|r| r.arrived > killed + promoted)
        .unwrap();
    println!(
        "promoted after {promoted:?}, next request after {:?}; {} events, {} requests, {again} deliveries twice",
        first.arrived.duration_since(killed),
        committed.len(),
        requests.len()
    );
    // Outcomes were held, and so was the lease: nothing had to be sent again.
    assert_eq!(again, 0);
    assert_eq!(
        world.one::<Vec<Uuid>>(workers, &[]).await,
        before,
        "{}",
        process.output()
    );
    assert_one_flight(&requests);
    let paced: Vec<Recorded> = requests
        .iter()
        .filter(|r| r.path == "/paced")
        .cloned()
        .collect();
    assert_pace(&paced, 40.0, 4 + 4); // The machine also starts a server meanwhile.
    assert!(world.receiver.max_open("/in") <= 3);
    if clock == 0.0 {
        let limited = world.receiver.requests_to("/limited");
        let pause = limited[1].arrived.duration_since(limited[0].arrived);
        assert!(pause >= PAUSE, "{pause:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_takes_over() {
    fails_over(0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_standby_whose_clock_is_ahead_takes_over() {
    fails_over(10.0).await;
}
