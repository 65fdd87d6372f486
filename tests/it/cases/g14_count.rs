//! G14: the failure ladder miscounts when several requests fail at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const THREE_WORKERS: usize = 3;

/// All fail, ten at a time: each of the four steps is taken once, in order, and none is left out.
#[tokio::test]
async fn g14_each_step_of_the_ladder_is_taken_once() {
    let well = Arc::new(AtomicBool::new(false));
    let is_well = well.clone();
    let mut world = World::new(move |_, _| {
        let status = if is_well.load(Ordering::Relaxed) {
            200
        } else {
            500
        };
        Reply::status(status).after(ms(10))
    })
    .await;
    world
        .quick_policy("steps", r#"{"max_attempts": 100, "backoff_base": "0 s"}"#)
        .await;
    world
        .run(
            "insert into postrider.policy_rungs values ('steps', 1, 10, '0', '500 ms'),
                 ('steps', 2, 20, '0', '500 ms'), ('steps', 3, 30, '0', '500 ms'), ('steps', 4, 40, '0', null)",
        )
        .await;
    let endpoint = world
        .endpoint("/in", "policy => 'steps', concurrency => 10")
        .await;
    for _ in 0..THREE_WORKERS {
        world.worker();
    }
    world.emit_many("a", 60).await;
    let disabled = "select disabled_at is not null and owner is null from postrider.endpoint_state where endpoint_id = $1";
    eventually(LIMIT, async || {
        world
            .one::<bool>(disabled, &[&endpoint])
            .await
            .then_some(())
    })
    .await;
    let alerts = "select array_agg(kind order by id) from postrider.alerts where endpoint_id = $1";
    let paused = "endpoint_paused";
    assert_eq!(
        world.one::<Vec<String>>(alerts, &[&endpoint]).await,
        [paused, paused, paused, "endpoint_disabled"]
    );
    let counted = "select s.failures, (select count(*)::int from postrider.attempts) from postrider.endpoint_state s";
    let row = world.sql.query_one(counted, &[]).await.unwrap();
    let (failures, attempts): (i32, i32) = (row.get(0), row.get(1));
    assert_eq!(failures, attempts, "retries included");
    assert_eq!(
        usize::try_from(attempts).unwrap(),
        world.receiver.requests().len()
    );
    // After a pause one at a time, so the last steps are met exactly.
    assert_eq!(failures, 40);
    // A person and a success, and it is as if nothing had been.
    well.store(true, Ordering::Relaxed);
    world
        .run(&format!("select postrider.enable_endpoint({endpoint})"))
        .await;
    world.settled().await;
    let left = "select failures + rung from postrider.endpoint_state where endpoint_id = $1";
    assert_eq!(world.one::<i32>(left, &[&endpoint]).await, 0);
}

/// The count is that of the failed attempts since the last success, retries included and 429 excluded, however
/// the answers came to be reported together.
#[tokio::test]
async fn g14_the_count_is_what_failed_since_the_last_success() {
    let mut world = World::new(|_, nth| {
        let status = match nth.of_path {
            9 | 31 => 200,
            14 | 40 => 429,
            _ => 500,
        };
        Reply::status(status).after(ms(20 + 7 * (nth.of_path as u64 % 5)))
    })
    .await;
    world
        .quick_policy("twice", r#"{"max_attempts": 2, "pause_default": "1 s"}"#)
        .await;
    let endpoint = world
        .endpoint("/in", "policy => 'twice', concurrency => 10")
        .await;
    for _ in 0..THREE_WORKERS {
        world.worker();
    }
    world.emit_many("a", 60).await;
    world.settled().await;
    // In the order in which they were recorded: by report, and within one by seq.
    let sql = "with a as (select outcome, row_number() over (order by xmin::text::bigint, seq) as n from postrider.attempts)
               select (select count(*)::int from a where outcome not in ('delivered', 'rate_limited')
                          and n > (select max(n) from a where outcome = 'delivered')),
                      (select count(*)::int from a where outcome = 'rate_limited'), s.failures
                 from postrider.endpoint_state s where s.endpoint_id = $1";
    let row = world.sql.query_one(sql, &[&endpoint]).await.unwrap();
    let (expected, limited, failures): (i32, i32, i32) = (row.get(0), row.get(1), row.get(2));
    assert_eq!(failures, expected);
    assert_eq!(limited, 2);
    // Some sixty deliveries fail twice, and about thirty failures came before the last success.
    assert!((70..110).contains(&failures), "{failures}");
}
