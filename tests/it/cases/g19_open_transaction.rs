//! G19: an application's transaction that stays open after it emitted holds up no endpoint, and no emit ever
//! waits for a worker.

use std::time::{Duration, Instant};

use crate::fixtures::arrivals::{assert_once_each, assert_pace};
use crate::fixtures::engine::{Engine, run};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

#[tokio::test]
async fn g19_an_open_emitting_transaction_hides_no_endpoint() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let open = e.session().await;
    let emit = format!(
        "begin; select postrider.emit_event('a.b', '{{}}', endpoint_id => {endpoint});
         select postrider.emit_event('a.b', '{{}}')"
    );
    run(&open, &emit).await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
    // State changes wait for it no more than the claim did.
    let verbs = format!(
        "set lock_timeout = '100ms'; select postrider.pause_endpoint({endpoint});
         select postrider.resume_endpoint({endpoint}); select postrider.disable_endpoint({endpoint});
         select postrider.enable_endpoint({endpoint}); select postrider.delete_endpoint({endpoint})"
    );
    run(&e.session().await, &verbs).await;
    run(&open, "commit").await;
}

#[tokio::test]
async fn g19_emit_waits_for_no_lock_of_workers_and_operators() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    let holder = e.session().await;
    let hold = format!(
        "begin; select postrider.fan_out('{worker}'); select postrider.claim_endpoints('{worker}', 10);
         select postrider.pause_endpoint({endpoint}); select postrider.update_endpoint({endpoint}, description => 'x');
         select from postrider.endpoints for update; select from postrider.endpoint_state for update;
         select from postrider.workers for update; select from postrider.settings for no key update"
    );
    run(&holder, &hold).await;
    let emit = format!(
        "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{{}}');
         select postrider.emit_event('a.b', '{{}}', endpoint_id => {endpoint})"
    );
    run(&e.session().await, &emit).await;
    run(&holder, "rollback").await;
    // And two emitters wait for neither of them.
    run(
        &holder,
        "begin; select postrider.emit_event('a.b', '{}', idempotency_key => 'one')",
    )
    .await;
    let other = "set lock_timeout = '200ms'; select postrider.emit_event('a.b', '{}', idempotency_key => 'two')";
    run(&e.session().await, other).await;
    run(&holder, "commit").await;
}

const STATE: &str = "select state from postrider.endpoint_health where endpoint_id = $1";

async fn wait_for_state(world: &World, endpoint: i64, state: &str) {
    eventually(LIMIT, async || {
        let found: String = world.one(STATE, &[&endpoint]).await;
        (found == state).then_some(())
    })
    .await;
}

/// With a transaction open that emitted to both: one endpoint is served at its full pace, the other is paused by
/// its ladder and resumed, and a person's changes wait for nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_deliveries_and_state_changes_go_on_beside_an_open_emit() {
    let mut world = World::alone(|request, nth| match request.path.as_str() {
        "/bad" if nth.of_path <= 3 => Reply::status(500),
        _ => Reply::status(200),
    })
    .await;
    let ladder = r#"{"max_attempts": 100, "backoff_base": "0 s"}"#;
    world.quick_policy("ladder", ladder).await;
    world
        .run("insert into postrider.policy_rungs values ('ladder', 1, 3, '0', '1 h')")
        .await;
    let endpoint = world.endpoint("/in", "rate => 50, burst => 10").await;
    let bad = world
        .endpoint(
            "/bad",
            "policy => 'ladder', event_types => '{none}', concurrency => 1",
        )
        .await;
    let open = world.connect().await;
    let emit_to = |id| {
        format!(
            "select postrider.emit_event('a', '{}', endpoint_id => {id})",
            "{}"
        )
    };
    let emit = format!("begin; {}; {}", emit_to(endpoint), emit_to(bad));
    open.batch_execute(&emit).await.unwrap();
    world.emit_many("a", 100).await;
    world.run(&emit_to(bad)).await;
    world.worker();
    let requests = world.arrived("/in", 100).await;
    assert_pace(&requests, 50.0, 10);
    let took = requests[99].arrived.duration_since(requests[0].arrived);
    assert!(took < ms(2 * 1800), "90 at 50 a second took {took:?}");

    wait_for_state(&world, bad, "paused").await;
    let operator = world.connect().await;
    let verbs = [
        "resume_endpoint",
        "pause_endpoint",
        "disable_endpoint",
        "enable_endpoint",
        "resume_endpoint",
    ];
    operator
        .batch_execute("set lock_timeout = '100ms'")
        .await
        .unwrap();
    for verb in verbs {
        for id in [bad, endpoint] {
            let call = format!("select postrider.{verb}({id})");
            operator.batch_execute(&call).await.unwrap();
        }
    }
    world.arrived("/bad", 4).await;
    wait_for_state(&world, bad, "active").await;
    open.batch_execute("commit").await.unwrap();
    world.settled().await;
    assert_once_each(&world.receiver.requests_to("/in"), 101);
}

/// At every moment some emitting transaction is open. What has committed is delivered meanwhile, and no emit
/// meets a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_overlapping_emitting_transactions_freeze_nothing() {
    const SESSIONS: usize = 12;
    const ROUNDS: usize = 5;
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world.endpoint("/in", "concurrency => 20").await;
    world.worker();
    world.worker();
    let begun = Instant::now();
    let mut emitting = Vec::new();
    for n in 0..SESSIONS {
        let session = world.connect().await;
        emitting.push(tokio::spawn(async move {
            session
                .batch_execute("set lock_timeout = '200ms'")
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_millis(40 * n as u64)).await;
            for _ in 0..ROUNDS {
                let emit =
                    "begin; select postrider.emit_event('a', '{}') from generate_series(1, 3)";
                session.batch_execute(emit).await.unwrap();
                tokio::time::sleep(ms(500)).await;
                session.batch_execute("commit").await.unwrap();
            }
            Instant::now()
        }));
    }
    let mut ends = Vec::new();
    for session in emitting {
        ends.push(session.await.unwrap());
    }
    // When the first session ended, the others were still at it.
    let first_end = ends.iter().min().unwrap();
    world.settled().await;
    let requests = world.receiver.requests_to("/in");
    assert_once_each(&requests, SESSIONS * ROUNDS * 3);
    let before = requests.iter().filter(|r| r.arrived < *first_end).count();
    assert!(
        before > SESSIONS * 3,
        "{before} arrived in the {:?} of open transactions",
        first_end.duration_since(begun)
    );
}
