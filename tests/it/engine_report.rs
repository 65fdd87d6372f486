//! report_attempts: an attempt moves its delivery once, if it is the next one of the current run.

use crate::fixtures::engine::{Engine, all, count, one, run};
use crate::fixtures::eventually;
use crate::fixtures::lane::Lane;
use crate::fixtures::worker::LIMIT;

/// Everything a repeated report must leave as it was.
async fn everything(e: &Engine) -> String {
    one(
        &e.sql,
        "select concat_ws(E'\n',
             (select jsonb_agg(to_jsonb(p) order by event_id)::text from postrider.pending p),
             (select jsonb_agg(to_jsonb(f) order by event_id)::text from postrider.finished f),
             (select jsonb_agg(to_jsonb(a) order by seq)::text from postrider.attempts a),
             (select jsonb_agg(to_jsonb(s))::text from postrider.endpoint_state s),
             (select jsonb_agg(to_jsonb(t))::text from postrider.endpoint_stats t),
             (select jsonb_agg(to_jsonb(l))::text from postrider.alerts l))",
    )
    .await
}

#[tokio::test]
async fn a_repeated_report_changes_nothing() {
    for policy in ["patient", "brisk"] {
        for status in [200, 500, 404, 410, 429, 503] {
            let lane = Lane::new(policy).await;
            let events = lane.owe(3).await;
            let mut batch: Vec<_> = events
                .iter()
                .map(|e| lane.attempt(*e, status).wait(30.0))
                .collect();
            lane.report(&batch).await;
            let before = everything(&lane.engine).await;
            // Sent again after its answer was lost, a moment later.
            for attempt in &mut batch {
                attempt.ago += 5000;
            }
            let mut verdicts = Vec::new();
            for _ in 0..2 {
                verdicts.push(lane.report(&batch).await);
            }
            assert_eq!(everything(&lane.engine).await, before, "{policy} {status}");
            assert!(verdicts.iter().all(|v| v.owned && !v.history_lost));
            // In part too, and mixed with something new.
            let event = lane.owe(1).await[0];
            let mixed = [batch[1].clone(), lane.attempt(event, 200), batch[0].clone()];
            lane.report(&mixed).await;
            assert_eq!(
                lane.ended(event).await.as_deref(),
                Some("delivered"),
                "{policy} {status}"
            );
            assert_eq!(count(&lane.engine.sql, "postrider.attempts").await, 4);
        }
    }
}

#[tokio::test]
async fn only_the_next_attempt_of_a_delivery_moves_it() {
    let lane = Lane::new("patient").await;
    let event = lane.owe(1).await[0];
    lane.report(&[lane.attempt(event, 500).number(2)]).await;
    lane.report(&[lane.attempt(event, 200).number(3)]).await;
    assert!(
        lane.owed::<bool>(event, "attempts = 0 and failures = 0")
            .await
    );
    assert_eq!(lane.failures().await, 0);
    lane.report(&[lane.attempt(event, 500)]).await;
    // A different request under a number that has been reported.
    lane.report(&[lane.attempt(event, 500)]).await;
    assert!(
        lane.owed::<bool>(event, "attempts = 1 and failures = 1")
            .await
    );
    assert_eq!(lane.failures().await, 1);
    lane.report(&[lane.attempt(event, 429).number(2)]).await;
    lane.report(&[lane.attempt(event, 200).number(3)]).await;
    assert_eq!(lane.ended(event).await.as_deref(), Some("delivered"));
    let e = &lane.engine;
    let ended = "postrider.finished where attempts = 3 and failures = 1 and last_http_status = 200";
    assert_eq!(count(&e.sql, ended).await, 1);
    // All requests are kept; what moved nothing is marked.
    let sql = "select array_agg(stale order by seq) from postrider.attempts";
    let stale: Vec<bool> = one(&e.sql, sql).await;
    assert_eq!(stale, [true, true, false, true, false, false]);
    let sql = "select array[sum(delivered), sum(failed), sum(rate_limited)]::int[] from postrider.endpoint_stats";
    assert_eq!(one::<Vec<i32>>(&e.sql, sql).await, [1, 1, 1]);
}

#[tokio::test]
async fn a_report_for_an_older_run_is_log_only() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let event = lane.owe(1).await[0];
    lane.report(&[lane.attempt(event, 404)]).await;
    run(
        &e.sql,
        &format!(
            "select postrider.replay_delivery('{event}', {})",
            lane.endpoint
        ),
    )
    .await;
    assert!(
        lane.owed::<bool>(event, "run = 2 and attempts = 0 and failures = 0")
            .await
    );
    let failures = lane.failures().await;
    for status in [200, 500, 404] {
        lane.report(&[lane.attempt(event, status)]).await;
    }
    assert!(
        lane.owed::<bool>(event, "run = 2 and attempts = 0").await,
        "someone asked for it again"
    );
    assert_eq!(lane.failures().await, failures);
    assert_eq!(count(&e.sql, "postrider.attempts where stale").await, 3);
    lane.report(&[lane.attempt(event, 200).run(2)]).await;
    let ends: Vec<String> = all(
        &e.sql,
        "select run || status from postrider.finished order by run",
    )
    .await;
    assert_eq!(ends, ["1rejected", "2delivered"]);
}

#[tokio::test]
async fn what_was_cancelled_meanwhile_is_log_only() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(2).await;
    lane.verb("delete_endpoint").await;
    run(&e.sql, "select postrider.maintain()").await;
    lane.report(&[lane.attempt(events[0], 200), lane.attempt(events[1], 500)])
        .await;
    for event in events {
        assert_eq!(lane.ended(event).await.as_deref(), Some("cancelled"));
    }
    assert_eq!(count(&e.sql, "postrider.attempts where stale").await, 2);
    assert_eq!(lane.failures().await, 0);
}

#[tokio::test]
async fn a_success_on_a_healthy_endpoint_writes_neither_ladder_nor_pace() {
    let lane = Lane::new("patient").await;
    lane.once(200).await;
    let row = "ctid::text || xmin::text";
    let events = lane.owe(2).await;
    let before: String = lane.engine.state(lane.endpoint, row).await;
    lane.report(&[lane.attempt(events[0], 200)]).await;
    lane.report(&[lane.attempt(events[1], 200)]).await;
    assert_eq!(
        lane.engine.state::<String>(lane.endpoint, row).await,
        before
    );
}

#[tokio::test]
async fn statistics_and_state_are_written_once_per_endpoint_and_batch() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let sql = "create table public.writes (what text);
               create function public.note() returns trigger language plpgsql as
                   $$ begin insert into public.writes values (tg_table_name || tg_op); return null; end $$;
               create trigger note after insert or update on postrider.endpoint_state for each row execute function public.note();
               create trigger note after insert or update on postrider.endpoint_stats for each row execute function public.note()";
    let events = lane.owe(12).await;
    run(&e.sql, sql).await;
    let batch: Vec<_> = events
        .iter()
        .zip([500, 429, 200, 500].iter().cycle())
        .map(|(event, status)| lane.attempt(*event, *status))
        .collect();
    lane.report(&batch).await;
    let mut writes: Vec<String> = all(&e.sql, "select what from public.writes").await;
    writes.sort();
    assert_eq!(writes, ["endpoint_stateUPDATE", "endpoint_statsINSERT"]);
}

/// Time to live is ended without the endpoint's lock, so a report may find the row going.
#[tokio::test]
async fn a_delivery_that_expires_meanwhile_is_not_moved_as_well() {
    for status in [200, 500] {
        for commits in [true, false] {
            let lane = Lane::new("patient").await;
            let e = &lane.engine;
            let events = lane.owe(2).await;
            let other = e.session().await;
            let expire = format!(
                "begin; select postrider._expire(array['{}']::uuid[], array[{}::bigint], 'infinity')",
                events[0], lane.endpoint
            );
            run(&other, &expire).await;
            let pid: i32 = one(&e.sql, "select pg_backend_pid()").await;
            let waits = format!("select cardinality(pg_blocking_pids({pid})) > 0");
            let attempts = events
                .iter()
                .map(|e| lane.attempt(*e, status))
                .collect::<Vec<_>>();
            let end = async {
                eventually(LIMIT, async || {
                    one::<bool>(&other, &waits).await.then_some(())
                })
                .await;
                run(&other, if commits { "commit" } else { "rollback" }).await;
            };
            let (verdict, ()) = tokio::join!(lane.report(&attempts), end);
            assert!(verdict.owned && !verdict.history_lost);
            let stale = "select array_agg(stale order by seq) from postrider.attempts";
            let stale: Vec<bool> = one(&e.sql, stale).await;
            assert_eq!(stale, [commits, false], "{status}");
            let ended = lane.ended(events[0]).await;
            let expected = match (commits, status) {
                (true, _) => Some("expired"),
                (false, 200) => Some("delivered"),
                (false, _) => None,
            };
            assert_eq!(ended.as_deref(), expected, "{status}");
            let failures = if status == 200 {
                0
            } else {
                2 - i32::from(commits)
            };
            assert_eq!(lane.failures().await, failures);
        }
    }
}
