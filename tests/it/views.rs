//! The public read side.

use std::time::Duration;

use tokio_postgres::Client;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{all, attempt, emit, endpoint, fan_out, one, run, worker};

#[tokio::test]
async fn their_columns_are_the_contract() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for (view, columns) in [
        (
            "deliveries",
            "event_id, endpoint_id, tenant, event_type, url, run, status, reason, attempts, failures, \
             last_http_status, last_error, next_attempt_at, created_at, finished_at",
        ),
        (
            "event_status",
            "event_id, tenant, event_type, created_at, state, deliveries, pending, delivered, failed",
        ),
        (
            "endpoint_health",
            "endpoint_id, tenant, url, state, reason, until, failures, rung, backlog, oldest_due_at, rate, burst, \
             concurrency, success_rate_1h, success_rate_24h, p50_ms_24h, p95_ms_24h",
        ),
        (
            "queue_depth",
            "outbox, due, later, oldest_due_age, endpoints_active, endpoints_paused, endpoints_disabled, workers",
        ),
    ] {
        let sql = format!(
            "select string_agg(attname, ', ' order by attnum) from pg_attribute
             where attrelid = 'postrider.{view}'::regclass and attnum > 0"
        );
        assert_eq!(one::<String>(&client, &sql).await, columns);
    }
}

/// State, reason and whether the end of it is known, of an endpoint.
async fn health(client: &Client, id: i64) -> String {
    let sql = format!(
        "select format('%s, %s, %s', state, coalesce(reason, '-'),
             case when until is null then '-' when isfinite(until) then 'ends' else 'open' end)
         from postrider.endpoint_health where endpoint_id = {id}"
    );
    one(client, &sql).await
}

#[tokio::test]
async fn the_state_of_an_endpoint() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let set = async |sql: &str| {
        run(
            &client,
            &format!("update postrider.endpoint_state set {sql} where endpoint_id = {id}"),
        )
        .await;
    };
    assert_eq!(health(&client, id).await, "active, -, -");
    set("rate_limited_until = now() + interval '1 hour'").await;
    assert_eq!(
        health(&client, id).await,
        "rate_limited, the endpoint asked to wait, ends"
    );
    set("ladder_paused_until = now() + interval '1 minute', reason = '10 failures in a row'").await;
    assert_eq!(
        health(&client, id).await,
        "paused, 10 failures in a row, ends"
    );
    let sql = "select until = rate_limited_until from postrider.endpoint_health h join postrider.endpoint_state using (endpoint_id)";
    assert!(one::<bool>(&client, sql).await, "the longest pause counts");
    run(
        &client,
        &format!("select postrider.pause_endpoint({id}, reason => 'holiday')"),
    )
    .await;
    assert_eq!(health(&client, id).await, "paused, holiday, open");
    run(
        &client,
        &format!("select postrider.disable_endpoint({id}, 'moved')"),
    )
    .await;
    assert_eq!(health(&client, id).await, "disabled, moved, -");
    run(
        &client,
        &format!("select postrider.enable_endpoint({id}), postrider.resume_endpoint({id})"),
    )
    .await;
    assert_eq!(
        health(&client, id).await,
        "rate_limited, the endpoint asked to wait, ends"
    );
    db.advance_clock(Duration::from_secs(7200)).await;
    assert_eq!(health(&client, id).await, "active, -, -");
    run(&client, &format!("select postrider.delete_endpoint({id})")).await;
    assert_eq!(
        one::<i64>(&client, "select count(*) from postrider.endpoint_health").await,
        0
    );
}

#[tokio::test]
async fn backlog_pace_rates_and_percentiles() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let quiet = "select format('%s %s %s %s %s', backlog, success_rate_1h is null, success_rate_24h is null,
                     p50_ms_24h is null, p95_ms_24h is null) from postrider.endpoint_health";
    assert_eq!(one::<String>(&client, quiet).await, "0 t t t t");
    run(
        &client,
        &format!(
            "select postrider.update_endpoint({id}, rate => 2.5);
             insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
             select gen_random_uuid(), {id}, now(), now() + interval '1 day' from generate_series(1, 10050);
             insert into postrider.endpoint_stats (endpoint_id, hour, delivered, failed, rate_limited, latency) values
                 ({id}, date_trunc('hour', now()), 3, 1, 50, '{{0,0,0,0,0,4,0,0,0,0,0,0,0,0,0}}'),
                 ({id}, date_trunc('hour', now()) - interval '20 hours', 0, 4, 0, '{{0,0,0,0,0,0,0,0,0,0,0,0,0,0,1}}'),
                 ({id}, date_trunc('hour', now()) - interval '26 hours', 0, 1000, 0, '{{0,0,0,0,0,0,0,0,0,0,0,0,0,0,9}}')"
        ),
    )
    .await;
    let sql = "select format('%s %s %s %s %s %s %s %s', backlog, rate, burst, concurrency, success_rate_1h,
                   success_rate_24h, p50_ms_24h, p95_ms_24h) from postrider.endpoint_health";
    assert_eq!(
        one::<String>(&client, sql).await,
        "10000 2.5 10 5 0.7500 0.3750 39 30000"
    );
}

#[tokio::test]
async fn what_the_queue_holds() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select format('%s %s %s %s, %s %s %s, %s', outbox, due, later,
                   case when oldest_due_age is null then '-' else floor(extract(epoch from oldest_due_age) / 100)::text end,
                   endpoints_active, endpoints_paused, endpoints_disabled, workers) from postrider.queue_depth";
    assert_eq!(one::<String>(&client, sql).await, "0 0 0 -, 0 0 0, 0");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(endpoint(&client, "patient").await);
    }
    let worker = worker(&client).await;
    emit(&client, "a").await;
    run(
        &client,
        "select postrider.emit_event('a', '{}', deliver_at => now() + interval '1 day')",
    )
    .await;
    fan_out(&client, worker).await;
    emit(&client, "a").await;
    db.advance_clock(Duration::from_secs(100)).await;
    assert_eq!(one::<String>(&client, sql).await, "1 3 3 1, 3 0 0, 1");
    run(
        &client,
        &format!(
            "select postrider.pause_endpoint({}), postrider.disable_endpoint({})",
            ids[0], ids[1]
        ),
    )
    .await;
    assert_eq!(one::<String>(&client, sql).await, "1 1 5 1, 1 1 1, 1");
}

/// Why the only delivery waits, or what became of it.
async fn reason(client: &Client) -> String {
    let sql = "select format('%s: %s', status, coalesce(reason, '-')) from postrider.deliveries";
    one(client, sql).await
}

#[tokio::test]
async fn why_a_delivery_waits() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let worker = worker(&client).await;
    let event = {
        let sql = "select postrider.emit_event('a', '{}', deliver_at => now() + interval '1 hour')";
        one(&client, sql).await
    };
    fan_out(&client, worker).await;
    assert_eq!(reason(&client).await, "pending: waits for deliver_at");
    db.advance_clock(Duration::from_secs(3700)).await;
    assert_eq!(reason(&client).await, "pending: -");
    attempt(&client, worker, event, id, 429).await;
    assert_eq!(reason(&client).await, "pending: rate limited");
    db.advance_clock(Duration::from_secs(100)).await;
    attempt(&client, worker, event, id, 503).await;
    run(
        &client,
        "update postrider.pending set due_at = postrider.now() + interval '20 s'",
    )
    .await;
    assert_eq!(reason(&client).await, "pending: retry after 503");
    let sql =
        "select next_attempt_at = (select due_at from postrider.pending) from postrider.deliveries";
    assert!(one::<bool>(&client, sql).await);
    run(&client, &format!("select postrider.pause_endpoint({id})")).await;
    assert_eq!(reason(&client).await, "pending: endpoint paused");
    assert_eq!(
        one::<String>(
            &client,
            "select next_attempt_at::text from postrider.deliveries"
        )
        .await,
        "infinity"
    );
    run(&client, &format!("select postrider.disable_endpoint({id})")).await;
    assert_eq!(reason(&client).await, "pending: endpoint disabled");
    let sql = "select next_attempt_at is null from postrider.deliveries";
    assert!(one::<bool>(&client, sql).await);
    run(&client, &format!("select postrider.delete_endpoint({id})")).await;
    assert_eq!(reason(&client).await, "pending: endpoint deleted");
    run(&client, "select postrider.maintain()").await;
    assert_eq!(reason(&client).await, "cancelled: the endpoint was deleted");
    let sql = "select event_type || ' ' || (created_at - (select e.created_at from postrider.events e) < '1 ms')
               from postrider.deliveries";
    assert_eq!(one::<String>(&client, sql).await, "a true");
}

#[tokio::test]
async fn the_status_of_an_event() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let worker = worker(&client).await;
    let unmatched = emit(&client, "a").await;
    let status = async |event| {
        let sql = format!(
            "select format('%s %s %s %s %s', state, deliveries, pending, delivered, failed)
             from postrider.event_status where event_id = '{event}'"
        );
        one::<String>(&client, &sql).await
    };
    assert_eq!(status(unmatched).await, "accepted 0 0 0 0");
    fan_out(&client, worker).await;
    assert_eq!(status(unmatched).await, "unmatched 0 0 0 0");
    let (first, second, third) = (
        endpoint(&client, "patient").await,
        endpoint(&client, "patient").await,
        endpoint(&client, "patient").await,
    );
    assert!(first < second && second < third);
    let event = emit(&client, "a").await;
    fan_out(&client, worker).await;
    assert_eq!(status(event).await, "fanned_out 3 3 0 0");
    attempt(&client, worker, event, first, 204).await;
    attempt(&client, worker, event, second, 404).await;
    assert_eq!(status(event).await, "fanned_out 3 1 1 1");
    let sql = "select event_id::text || ' ' || deliveries from postrider.event_status order by created_at desc limit 1";
    assert_eq!(one::<String>(&client, sql).await, format!("{event} 3"));
}

/// Locks on relations that a statement leaves its transaction with.
async fn locks(client: &Client, sql: &str) -> i64 {
    run(client, &format!("begin; {sql}")).await;
    let held =
        "select count(*) from pg_locks where pid = pg_backend_pid() and locktype = 'relation'
                and relation > 16383";
    let count = one(client, held).await;
    run(client, "commit").await;
    count
}

#[tokio::test]
async fn a_view_bounded_by_id_locks_no_other_day() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let worker = worker(&client).await;
    let event = emit(&client, "a").await;
    fan_out(&client, worker).await;
    attempt(&client, worker, event, id, 200).await;
    run(
        &client,
        "select postrider._make_leaves(current_date - 90, current_date + 30)",
    )
    .await;
    let leaves: i64 = one(
        &client,
        "select count(*) from pg_inherits where inhparent = 'postrider.events'::regclass",
    )
    .await;
    assert!(leaves > 120);
    for view in ["deliveries", "event_status"] {
        let sql = format!("select * from postrider.{view} where event_id = '{event}'");
        assert_eq!(client.query(&sql, &[]).await.unwrap().len(), 1);
        let bounded = locks(&client, &sql).await;
        assert!(bounded <= 24, "{view}: {bounded} locks");
        // Without a bound: each leaf of one partitioned table, and its index.
        let unbounded = locks(&client, &format!("select * from postrider.{view}")).await;
        assert!(
            unbounded <= 2 * leaves + 24,
            "{view}: {unbounded} locks over {leaves} days"
        );
    }
}

#[tokio::test]
async fn the_newest_deliveries_are_read_from_indexes() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "insert into postrider.finished (event_id, endpoint_id, run, status, attempts, failures, finished_at)
         select postrider._uuid_v7(now() - n * interval '1 second'), 1, 1, 'delivered', 1, 0, now()
         from generate_series(1, 20000) n;
         analyze postrider.finished",
    )
    .await;
    let plan: Vec<String> = all(
        &client,
        "explain (analyze, timing off, summary off)
         select * from postrider.deliveries order by event_id desc limit 20",
    )
    .await;
    let plan = plan.join("\n");
    assert!(!plan.contains("Sort Method"), "{plan}");
    assert!(!plan.contains("rows=20000 loops"), "{plan}");
}
