//! maintain: leaves ahead, strays, time to live, deleted endpoints.

use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, report, run};
use crate::fixtures::lane::Lane;

const DAY: u64 = 86_400;

async fn maintain(client: &Client) -> Value {
    one(client, "select postrider.maintain()").await
}

#[tokio::test]
async fn leaves_are_made_thirty_days_ahead() {
    let e = Engine::at_noon().await;
    let ahead = async || {
        let mut days = Vec::new();
        for table in ["events", "finished", "attempts"] {
            // What a leaf takes, not what it is called: an id of that day is in no default partition.
            let sql = format!(
                "select count(*) from generate_series(0, 30) d where exists (
                     select from pg_class c join pg_inherits i on i.inhrelid = c.oid
                     where i.inhparent = 'postrider.{table}'::regclass
                       and c.relname = '{table}_' || to_char((postrider.now() at time zone 'UTC')::date + d, 'YYYYMMDD'))"
            );
            days.push(one::<i64>(&e.sql, &sql).await);
        }
        days
    };
    assert_eq!(ahead().await, [31, 31, 31]);
    e.pass(12 * DAY).await;
    assert_eq!(ahead().await, [19, 19, 19]);
    let done = maintain(&e.sql).await;
    assert_eq!(done["leaves_made"], 36, "{done}");
    assert_eq!(ahead().await, [31, 31, 31]);
    assert_eq!(maintain(&e.sql).await["leaves_made"], 0);
    // An id made now is in the leaf of its day.
    let id = e.emit("'a.b', '{}'").await;
    let sql = format!(
        "select tableoid::regclass::text = 'postrider.events_' || to_char(postrider.now() at time zone 'UTC', 'YYYYMMDD') from postrider.events where id = '{id}'"
    );
    assert!(one::<bool>(&e.sql, &sql).await);
}

#[tokio::test]
async fn a_day_without_a_leaf_loses_nothing_and_its_strays_are_moved() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    // No maintain for a long time.
    e.pass(45 * DAY).await;
    let events = lane.owe(3).await;
    lane.report(&[lane.attempt(events[0], 200), lane.attempt(events[1], 500)])
        .await;
    let strays = async || {
        (
            count(&e.sql, "postrider.events_default").await,
            count(&e.sql, "postrider.finished_default").await,
            count(&e.sql, "postrider.attempts_default").await,
        )
    };
    assert_eq!(strays().await, (3, 1, 2));
    assert_eq!(maintain(&e.sql).await["strays_moved"], 6);
    assert_eq!(strays().await, (0, 0, 0));
    assert_eq!(count(&e.sql, "postrider.events").await, 3);
    assert_eq!(count(&e.sql, "postrider.finished").await, 1);
    assert_eq!(count(&e.sql, "postrider.attempts").await, 2);
    lane.report(&[lane.attempt(events[2], 200)]).await;
    assert_eq!(lane.ended(events[2]).await.as_deref(), Some("delivered"));
    assert_eq!(strays().await, (0, 0, 0));
}

#[tokio::test]
async fn one_runs_at_a_time() {
    let e = Engine::at_noon().await;
    let s = e.session().await;
    run(&s, "begin; select postrider.maintain()").await;
    assert_eq!(maintain(&e.sql).await["busy"], true);
    run(&s, "commit").await;
    assert_eq!(maintain(&e.sql).await["busy"], false);
}

/// Deliveries by hand: as if emitted and fanned out, in bulk.
async fn bulk(e: &Engine, endpoint: i64, n: i64, expires: &str) {
    let sql = format!(
        "with made as (insert into postrider.events (id, tenant, event_type, body, created_at)
                       select postrider._uuid_v7(postrider.now()), 'default', 'a.b', '{{}}', postrider.now() from generate_series(1, {n}) returning id)
         insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
         select id, {endpoint}, postrider.now(), postrider.now() + {expires} from made"
    );
    run(&e.sql, &sql).await;
}

#[tokio::test]
async fn what_is_past_its_time_to_live_ends_in_batches() {
    let e = Engine::at_noon().await;
    let endpoint = e.endpoint("").await;
    bulk(&e, endpoint, 12_000, "interval '72 hours'").await;
    bulk(&e, endpoint, 10, "interval '30 days'").await;
    e.pass(71 * 3600).await;
    assert_eq!(maintain(&e.sql).await["expired"], 0);
    bulk(&e, endpoint, 5, "interval '72 hours'").await;
    e.pass(2 * 3600).await;
    let mut expired = 0;
    for _ in 0..5 {
        expired += maintain(&e.sql).await["expired"].as_i64().unwrap();
    }
    assert_eq!(expired, 12_000);
    assert_eq!(count(&e.sql, "postrider.pending").await, 15);
    assert_eq!(
        count(
            &e.sql,
            "postrider.finished where status = 'expired' and reason <> ''"
        )
        .await,
        12_000
    );
}

#[tokio::test]
async fn it_skips_deliveries_that_someone_holds() {
    let e = Engine::at_noon().await;
    let endpoint = e.endpoint("").await;
    bulk(&e, endpoint, 10, "interval '72 hours'").await;
    e.pass(73 * 3600).await;
    let holder = e.session().await;
    run(
        &holder,
        "begin; select from postrider.pending order by event_id limit 3 for update",
    )
    .await;
    run(&e.sql, "set lock_timeout = '200ms'").await;
    assert_eq!(maintain(&e.sql).await["expired"], 7);
    run(&holder, "commit").await;
    assert_eq!(maintain(&e.sql).await["expired"], 3);
}

#[tokio::test]
async fn what_a_deleted_endpoint_left_ends_as_cancelled() {
    let e = Engine::at_noon().await;
    let (deleted, kept) = (e.endpoint("").await, e.endpoint("").await);
    bulk(&e, deleted, 11_000, "interval '72 hours'").await;
    bulk(&e, kept, 10, "interval '72 hours'").await;
    let sql = format!(
        "set statement_timeout = '2s'; select postrider.delete_endpoint({deleted}); reset statement_timeout"
    );
    run(&e.sql, &sql).await;
    let mut cancelled = 0;
    for _ in 0..5 {
        cancelled += maintain(&e.sql).await["cancelled"].as_i64().unwrap();
    }
    assert_eq!(cancelled, 11_000);
    assert_eq!(count(&e.sql, "postrider.pending").await, 10);
    let reasons: Vec<String> = all(
        &e.sql,
        "select distinct status || ': ' || reason from postrider.finished",
    )
    .await;
    assert_eq!(reasons, ["cancelled: the endpoint was deleted"]);
    // A new endpoint with its address inherits nothing.
    let next = e.endpoint("").await;
    assert!(
        e.state::<bool>(next, "next_claim_at is null and failures = 0")
            .await
    );
    let _: Uuid = e.worker().await;
}

/// What statistics say never changes by it, a report that comes between included; nor by a report still to commit.
#[tokio::test]
async fn statistics_are_summed_and_end_with_retention() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    let events = lane.owe(4).await;
    let said = "select jsonb_agg(to_jsonb(x)) from (
        select sum(delivered) as d, sum(failed) as f, sum(rate_limited) as r, postrider._latency_sum(endpoint_id, '-infinity') as l
          from postrider.endpoint_stats group by endpoint_id) x";
    for (event, status) in events.iter().zip([200, 500, 404]) {
        lane.report(&[lane.attempt(*event, status)]).await;
    }
    let before: Value = one(&e.sql, said).await;
    assert_eq!((&before[0]["d"], &before[0]["f"]), (&1.into(), &2.into()));
    let other = e.session().await;
    run(&other, "begin").await;
    report(&other, lane.worker, &[lane.attempt(events[3], 200)])
        .await
        .unwrap();
    maintain(&e.sql).await;
    assert_eq!(count(&e.sql, "postrider.endpoint_stats").await, 1);
    assert_eq!(one::<Value>(&e.sql, said).await, before);
    run(&other, "commit").await;
    maintain(&e.sql).await;
    assert_eq!(count(&e.sql, "postrider.endpoint_stats").await, 1);
    assert_eq!(one::<Value>(&e.sql, said).await[0]["d"], 2);
    // An hour more is a row more; both go when they are past retention.
    e.pass(3600).await;
    let event = lane.owe(1).await[0];
    lane.report(&[lane.attempt(event, 200)]).await;
    maintain(&e.sql).await;
    assert_eq!(
        count(&e.sql, "postrider.endpoint_stats where summed").await,
        2
    );
    e.pass(40 * DAY).await;
    maintain(&e.sql).await;
    assert_eq!(count(&e.sql, "postrider.endpoint_stats").await, 0);
}

/// A table without a key needs a replica identity there, or Postgres refuses every delete from it.
#[tokio::test]
async fn a_publication_of_all_tables_does_not_stop_it() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    run(&e.sql, "create publication everything for all tables").await;
    let event = lane.owe(1).await[0];
    lane.report(&[lane.attempt(event, 200)]).await;
    maintain(&e.sql).await;
    assert_eq!(
        count(&e.sql, "postrider.endpoint_stats where summed").await,
        1
    );
}

#[tokio::test]
async fn statistics_that_cannot_be_kept_hold_nothing_up() {
    let lane = Lane::at_noon("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    run(
        &e.sql,
        "alter table postrider.endpoint_stats rename to away",
    )
    .await;
    e.pass(40 * DAY).await;
    let done = maintain(&e.sql).await;
    assert_eq!(done["expired"], 1, "{done}");
}
