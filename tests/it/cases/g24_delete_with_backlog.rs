//! G24: an endpoint is deleted at once however much it is owed; nothing more is sent to it, and whoever comes
//! after it at the same address inherits nothing. `G24_DELIVERIES=200000` runs it at the case's full size.

use std::time::{Duration, Instant};

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::backlog::{owe, size};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{all, attempt, emit, endpoint, fan_out, one, run, worker};
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

#[tokio::test]
async fn g24_deleting_does_not_wait_for_the_backlog() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let worker = worker(&client).await;
    let event = emit(&client, "a").await;
    fan_out(&client, worker).await;
    run(
        &client,
        &format!(
            "insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
             select postrider._uuid_v7(now()), {id}, now(), now() + interval '1 day' from generate_series(1, 200000);
             select postrider.claim_endpoints('{worker}', 1)"
        ),
    )
    .await;
    let begun = Instant::now();
    run(&client, &format!("select postrider.delete_endpoint({id})")).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );

    // What was in flight ends quietly; nothing more is handed out, before or after its owner lets go.
    attempt(&client, worker, event, id, 200).await;
    let fetched = format!("select event_id::text from postrider.fetch_deliveries('{worker}', '{{{id}}}', '{{9}}', '{{}}', '{{}}', 1000000)
                           where event_id is not null");
    assert!(all::<String>(&client, &fetched).await.is_empty());
    run(
        &client,
        &format!("select postrider.release_endpoints('{worker}', '{{{id}}}', '{{0}}')"),
    )
    .await;
    let unmarked = format!(
        "select next_claim_at is null from postrider.endpoint_state where endpoint_id = {id}"
    );
    assert!(one::<bool>(&client, &unmarked).await);
    emit(&client, "a").await;
    fan_out(&client, worker).await;
    let sql = "select count(*) from postrider.pending";
    assert_eq!(one::<i64>(&client, sql).await, 200_000, "nothing is added");
    assert_eq!(
        one::<i64>(&client, "select count(*) from postrider.alerts").await,
        0
    );

    // The next endpoint with this URL inherits nothing.
    let sql = format!(
        "select endpoint_id from postrider.create_endpoint((select url from postrider.endpoints where id = {id}))"
    );
    let next: i64 = one(&client, &sql).await;
    assert_ne!(next, id);
    let sql =
        "select format('%s %s %s', endpoint_id, backlog, failures) from postrider.endpoint_health";
    assert_eq!(all::<String>(&client, sql).await, [format!("{next} 0 0")]);
}

/// With three requests open, ten deliveries waiting for their retry and a backlog behind them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g24_no_request_starts_after_the_delete() {
    let world = World::new(|request, nth| match request.path.as_str() {
        "/in" if nth.of_path <= 10 => Reply::status(500),
        "/in" => Reply::status(200).after(ms(400)),
        _ => Reply::status(200),
    })
    .await;
    let later = r#"{"backoff_base": "1 h", "backoff_cap": "1 h"}"#;
    world.quick_policy("later", later).await;
    let settings = "event_types => '{first}', policy => 'later', concurrency => 3";
    let deleted = world.endpoint("/in", settings).await;
    world.endpoint("/other", "event_types => '{other}'").await;
    let mut process = world.process(&[]);
    world.emit_many("first", 10).await;
    let waiting = "select count(*) from postrider.pending where failures = 1";
    eventually(LIMIT, async || {
        (world.one::<i64>(waiting, &[]).await == 10).then_some(())
    })
    .await;
    let size = size("G24_DELIVERIES", 20_000);
    owe(&world.sql, deleted, size).await;
    world.run("select pg_notify('postrider', '')").await;
    world.arrived("/in", 20).await;

    let begun = Instant::now();
    let done = world
        .run(&format!("select postrider.delete_endpoint({deleted})"))
        .await;
    println!("deleting with {size} owed took {:?}", done - begun);
    assert!(done - begun < Duration::from_secs(2));
    // Nobody else meets a lock meanwhile, and the address is free again.
    let session = world.connect().await;
    let others = "set lock_timeout = '100ms';
                  select postrider.emit_event('other', '{}') from generate_series(1, 20)";
    session.batch_execute(others).await.unwrap();
    let again = world.endpoint("/in", "event_types => '{again}'").await;
    assert_ne!(again, deleted);
    world.arrived("/other", 20).await;
    tokio::time::sleep_until((done + ms(2500)).into()).await;
    let late = |r: &&crate::fixtures::receiver::Recorded| r.arrived > done + ms(1000);
    let requests = world.receiver.requests_to("/in");
    assert_eq!(requests.iter().filter(late).count(), 0);

    // What was owed ends by and by, visibly; what was known stays.
    let owed = "select count(*) from postrider.pending where endpoint_id = $1";
    eventually(LIMIT * 4, async || {
        world.run("select postrider.maintain()").await;
        (world.one::<i64>(owed, &[&deleted]).await == 0).then_some(())
    })
    .await;
    let rest = "select count(*) from postrider.deliveries where endpoint_id = $1
                 and (status = 'delivered' or status = 'cancelled' and reason = 'the endpoint was deleted')";
    let ended: i64 = world.one(rest, &[&deleted]).await;
    assert_eq!(ended, i64::from(size) + 10);
    let attempts = "select count(*) from postrider.attempts where endpoint_id = $1";
    eventually(LIMIT, async || {
        let known: i64 = world.one(attempts, &[&deleted]).await;
        (known == i64::try_from(requests.len()).unwrap()).then_some(())
    })
    .await;

    // The next one at the address gets its own events, and starts well.
    let health = "select format('%s %s %s', state, backlog, failures) from postrider.endpoint_health where endpoint_id = $1";
    assert_eq!(world.one::<String>(health, &[&again]).await, "active 0 0");
    let event = world.emit("again").await;
    world.wait_for_status(event, again, "delivered").await;
    assert_eq!(world.receiver.requests_to("/in").len(), requests.len() + 1);
    assert_once_each(&world.receiver.requests_to("/other"), 20);

    process.signal(nix::sys::signal::Signal::SIGTERM);
    assert!(process.wait(LIMIT).await.success());
    let output = process.output();
    let complaints = output
        .lines()
        .filter(|l| l.contains("ERROR") || l.contains("WARN"));
    assert_eq!(complaints.count(), 0, "{output}");
}
