//! A transaction that changed an endpoint and stays open: it holds up that endpoint, and nothing else.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, run};

struct Held {
    e: Engine,
    holder: tokio_postgres::Client,
    held: i64,
    free: i64,
    worker: Uuid,
}

/// Two owned endpoints, one of which an operator pauses without committing.
async fn held() -> Held {
    let e = Engine::new().await;
    let (held, free) = (e.endpoint("").await, e.endpoint("").await);
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    assert_eq!(e.claim(worker, 10).await.len(), 2);
    let holder = e.session().await;
    let hold = format!("begin; select postrider.pause_endpoint({held})");
    run(&holder, &hold).await;
    Held {
        e,
        holder,
        held,
        free,
        worker,
    }
}

/// No call of the engine may wait for the holder: what it waits for otherwise takes milliseconds.
fn at_once(began: Instant) {
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test]
async fn g19_fan_out_goes_on_and_makes_the_rest_later() {
    let h = held().await;
    let began = Instant::now();
    let event = h.e.emit("'a.b', '{}'").await;
    assert_eq!(h.e.step(h.worker).await, (1, 1, false, false, vec![h.free]));
    at_once(began);
    assert_eq!(count(&h.e.sql, "postrider.deferred").await, 1);
    let accepted = format!("select state from postrider.event_status where event_id = '{event}'");
    assert_eq!(one::<String>(&h.e.sql, &accepted).await, "accepted");
    // Known to be held: no wait at all, and newer events queue up behind it in order.
    let second = h.e.emit("'a.b', '{}'").await;
    assert_eq!(h.e.step(h.worker).await.1, 1);
    run(&h.holder, "rollback").await;
    assert_eq!(h.e.step(h.worker).await, (0, 2, false, false, vec![h.held]));
    assert_eq!(count(&h.e.sql, "postrider.deferred").await, 0);
    for event in [event, second] {
        let pairs = format!("postrider.pending where event_id = '{event}'");
        assert_eq!(count(&h.e.sql, &pairs).await, 2);
    }
}

#[tokio::test]
async fn g19_what_was_deferred_for_a_deleted_endpoint_is_cancelled() {
    let h = held().await;
    let event = h.e.emit("'a.b', '{}'").await;
    h.e.step(h.worker).await;
    run(
        &h.holder,
        &format!("select postrider.delete_endpoint({}); commit", h.held),
    )
    .await;
    h.e.step(h.worker).await;
    assert_eq!(h.e.ended(event, h.held).await.as_deref(), Some("cancelled"));
}

#[tokio::test]
async fn g19_a_report_takes_what_it_can_and_says_what_it_did_not() {
    let h = held().await;
    let event: Uuid = one(&h.e.sql, "select event_id from postrider.pending limit 1").await;
    let attempts = [
        h.e.attempt(event, h.held, 500),
        h.e.attempt(event, h.free, 200),
    ];
    let began = Instant::now();
    let verdicts = h.e.report(h.worker, &attempts).await;
    at_once(began);
    let told = |endpoint| {
        verdicts
            .iter()
            .find(|v| v.endpoint == endpoint)
            .unwrap()
            .held
    };
    assert!(told(h.held) && !told(h.free));
    assert_eq!(h.e.ended(event, h.free).await.as_deref(), Some("delivered"));
    assert_eq!(count(&h.e.sql, "postrider.attempts").await, 1);
    run(&h.holder, "rollback").await;
    let verdicts = h.e.report(h.worker, &attempts).await;
    assert!(verdicts.iter().all(|v| !v.held));
    assert_eq!(h.e.state::<i32>(h.held, "failures").await, 1);
}

#[tokio::test]
async fn g19_a_release_gives_up_the_others_and_a_heartbeat_frees_the_others() {
    let h = held().await;
    let began = Instant::now();
    let release = format!(
        "select array_agg(r) from postrider.release_endpoints('{}', '{{{},{}}}', '{{0,0}}') r",
        h.worker, h.held, h.free
    );
    assert_eq!(one::<Vec<i64>>(&h.e.sql, &release).await, [h.held]);
    assert_eq!(h.e.claim(h.worker, 10).await, [h.free]);
    // The worker dies; its peer ends the lease.
    let peer = h.e.worker().await;
    let beat = format!(
        "select from postrider.heartbeat('{peer}', '{{{}}}', '{{0}}')",
        h.worker
    );
    run(&h.e.sql, &beat).await;
    at_once(began);
    assert!(h.e.state::<bool>(h.free, "owner is null").await);
    run(&h.holder, "rollback").await;
    run(
        &h.e.sql,
        &format!("select from postrider.heartbeat('{peer}', '{{}}', '{{}}')"),
    )
    .await;
    assert!(
        h.e.state::<bool>(h.held, "owner is null and next_claim_at is not null")
            .await
    );
}
