//! claim_endpoints: what is due and unowned, to a live worker, waiting for nobody.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, refused, run};

#[tokio::test]
async fn a_locked_endpoint_is_skipped_and_not_waited_for() {
    let e = Engine::new().await;
    let (locked, free) = (e.endpoint("").await, e.endpoint("").await);
    let worker = e.worker().await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let holder = e.session().await;
    let hold = format!(
        "begin; select from postrider.endpoint_state where endpoint_id = {locked} for no key update"
    );
    run(&holder, &hold).await;
    run(&e.sql, "set lock_timeout = '200ms'").await;
    assert_eq!(e.claim(worker, 10).await, [free]);
    run(&holder, "rollback").await;
    assert_eq!(e.claim(worker, 10).await, [locked]);
    assert!(e.claim(worker, 10).await.is_empty());
}

#[tokio::test]
async fn who_is_not_registered_claims_nothing() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let dead = e.worker().await;
    run(
        &e.sql,
        &format!("select postrider.deregister_worker('{dead}')"),
    )
    .await;
    for worker in [dead, Uuid::new_v4()] {
        let sql = format!("select postrider.claim_endpoints('{worker}', 10)");
        assert_eq!(refused(&e.sql, &sql).await, "PR021");
        let sql = format!("select postrider.heartbeat('{worker}', '{{}}', '{{}}')");
        assert_eq!(refused(&e.sql, &sql).await, "PR021");
    }
    assert!(e.state::<bool>(endpoint, "owner is null").await);
}

/// A claim that is not committed yet keeps its worker's row from being ended under it.
#[tokio::test]
async fn a_lease_cannot_end_in_the_middle_of_a_claim() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let (claiming, peer) = (e.worker().await, e.worker().await);
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let s = e.session().await;
    run(
        &s,
        &format!("begin; select postrider.claim_endpoints('{claiming}', 10)"),
    )
    .await;
    // A peer that takes it for dead passes over it, and frees nothing it cannot see.
    run(&e.sql, "set lock_timeout = '5s'").await;
    let kill = format!("select postrider.heartbeat('{peer}', '{{{claiming}}}', '{{0}}')");
    run(&e.sql, &kill).await;
    run(&s, "commit").await;
    let owner: Option<Uuid> = e.state(endpoint, "owner").await;
    let alive = count(
        &e.sql,
        &format!("postrider.workers where id = '{claiming}'"),
    )
    .await;
    assert_eq!((owner, alive), (Some(claiming), 1));
    run(&e.sql, &kill).await;
    assert!(e.state::<bool>(endpoint, "owner is null").await);
}

#[tokio::test]
async fn longest_due_first_and_no_more_than_asked() {
    let e = Engine::new().await;
    let worker = e.worker().await;
    let mut endpoints = Vec::new();
    for minutes in [30, 10, 20, 40] {
        let endpoint = e.endpoint("event_types => '{}'").await;
        e.emit(&format!("'a.b', '{{}}', endpoint_id => {endpoint}, deliver_at => postrider.now() + interval '{minutes} min'")).await;
        endpoints.push(endpoint);
    }
    e.fan_out().await;
    let sql = format!(
        "select next_claim_in_ms from postrider.claim_endpoints('{worker}', 2) where endpoint_id is null"
    );
    // Nothing is due yet; the last row says when.
    let first: i64 = one(&e.sql, &sql).await;
    assert!((590_000..=600_000).contains(&first), "{first}");
    e.pass(31 * 60).await;
    let mut claimed = e.claim(worker, 2).await;
    claimed.sort_unstable();
    let mut expected = [endpoints[1], endpoints[2]];
    expected.sort_unstable();
    assert_eq!(claimed, expected);
    assert_eq!(e.claim(worker, 2).await, [endpoints[0]]);
    assert!(e.claim(worker, 2).await.is_empty());
}

#[tokio::test]
async fn every_kind_of_pause_keeps_an_endpoint_unclaimed_until_the_last_ends() {
    let e = Engine::new().await;
    let worker = e.worker().await;
    let endpoint = e.endpoint("").await;
    let set = async |columns: &str| {
        run(
            &e.sql,
            &format!("update postrider.endpoint_state set {columns}"),
        )
        .await
    };
    set("rate_limited_until = postrider.now() + interval '1 min',
         ladder_paused_until = postrider.now() + interval '3 min',
         paused_until = postrider.now() + interval '2 min',
         lapsed_until = postrider.now() + interval '4 min'")
    .await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    assert!(
        e.state::<bool>(endpoint, "next_claim_at = lapsed_until")
            .await
    );
    for _ in 0..4 {
        assert!(e.claim(worker, 10).await.is_empty());
        e.pass(58).await;
    }
    e.pass(30).await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
}

#[tokio::test]
async fn resume_ends_the_ladders_and_a_persons_pause_but_not_a_429s() {
    let e = Engine::new().await;
    let worker = e.worker().await;
    let endpoint = e.endpoint("").await;
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let sql = "update postrider.endpoint_state set rate_limited_until = postrider.now() + interval '1 min',
                   ladder_paused_until = postrider.now() + interval '1 day', failures = 12, rung = 1,
                   failing_since = postrider.now() - interval '1 hour'";
    run(&e.sql, sql).await;
    run(
        &e.sql,
        &format!("select postrider.pause_endpoint({endpoint})"),
    )
    .await;
    assert!(
        e.state::<bool>(endpoint, "next_claim_at = 'infinity'")
            .await
    );
    run(
        &e.sql,
        &format!("select postrider.resume_endpoint({endpoint})"),
    )
    .await;
    assert!(e.state::<bool>(endpoint, "next_claim_at = rate_limited_until and paused_until is null and ladder_paused_until is null").await);
    // The failures stay counted.
    assert_eq!(e.state::<i32>(endpoint, "failures").await, 12);
    assert!(e.claim(worker, 10).await.is_empty());
    e.pass(61).await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
}

/// One worker's batch and another's do not overlap, whatever the number of sessions.
#[tokio::test]
async fn an_endpoint_has_one_owner() {
    let e = Engine::new().await;
    let sql = "select count(*) from generate_series(1, 200) i, postrider.create_endpoint('https://many' || i || '.example/in')";
    assert_eq!(one::<i64>(&e.sql, sql).await, 200);
    e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    let mut claims = Vec::new();
    for _ in 0..8 {
        let (s, worker) = (e.session().await, e.worker().await);
        claims.push(tokio::spawn(async move {
            let sql =
                format!("select count(endpoint_id) from postrider.claim_endpoints('{worker}', 7)");
            let mut total = 0;
            loop {
                match one::<i64>(&s, &sql).await {
                    0 => return (worker, total),
                    n => total += n,
                }
            }
        }));
    }
    let mut total = 0;
    for claim in claims {
        let (worker, claimed) = claim.await.unwrap();
        let owned = count(
            &e.sql,
            &format!("postrider.endpoint_state where owner = '{worker}'"),
        )
        .await;
        assert_eq!(claimed, owned);
        total += claimed;
    }
    // A worker that met only locked rows may have stopped early; whoever claims next takes the rest.
    let last = e.worker().await;
    assert_eq!(
        total + i64::try_from(e.claim(last, 200).await.len()).unwrap(),
        200
    );
}

/// For a row's lock its COMMIT would wait for the disk, each time a worker looks.
#[tokio::test]
async fn a_claim_of_nothing_writes_nothing() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    let wrote = "select pg_current_xact_id_if_assigned() is not null";
    for owed in [false, true] {
        run(&e.sql, "begin").await;
        let claimed = e.claim(worker, 10).await;
        assert_eq!(one::<bool>(&e.sql, wrote).await, owed);
        run(&e.sql, "commit").await;
        assert_eq!(claimed, if owed { vec![endpoint] } else { vec![] });
        e.emit("'a.b', '{}'").await;
        e.fan_out().await;
    }
    run(&e.sql, "delete from postrider.workers").await;
    let sql = format!("select from postrider.claim_endpoints('{worker}', 1)");
    let refused = e.sql.batch_execute(&sql).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "PR021");
}
