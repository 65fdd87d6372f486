//! What every verb of workers and operators keeps: isolation, durable commits, one lock order.

use crate::fixtures::engine::{Engine, all, one, refused, run};
use crate::fixtures::lane::Lane;

/// Calls with nulls of every public function that writes, as the catalog has them.
async fn calls(e: &Engine) -> Vec<String> {
    let sql = r"select format('select postrider.%I(%s)', p.proname,
                   (select string_agg('null::' || format_type(t.oid, null), ', ' order by t.n)
                    from unnest(p.proargtypes) with ordinality t (oid, n)))
               from pg_proc p
               where p.pronamespace = 'postrider'::regnamespace and p.proname !~ '^_' and p.provolatile = 'v'
                 and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype and p.proname <> 'emit_event' order by 1";
    all(&e.sql, sql).await
}

#[tokio::test]
async fn every_verb_refuses_any_isolation_but_read_committed() {
    let e = Engine::new().await;
    let calls = calls(&e).await;
    for verb in [
        "register_worker",
        "heartbeat",
        "fan_out",
        "claim_endpoints",
        "fetch_deliveries",
        "fetch_due",
        "report_attempts",
        "release_endpoints",
        "deregister_worker",
        "maintain",
        "create_endpoint",
        "update_endpoint",
        "delete_endpoint",
        "pause_endpoint",
        "resume_endpoint",
        "enable_endpoint",
        "disable_endpoint",
        "rotate_secret",
        "dismiss_alert",
        "send_test_event",
        "replay_delivery",
    ] {
        assert!(calls.iter().any(|c| c.contains(verb)), "{verb}");
    }
    let mut wrong = Vec::new();
    for level in ["repeatable read", "serializable"] {
        for call in &calls {
            let found = refused(&e.sql, &format!("begin isolation level {level}; {call}")).await;
            run(&e.sql, "rollback").await;
            if found != "PR020" {
                wrong.push(format!("{level}: {call}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // Read uncommitted is read committed in Postgres.
    run(&e.sql, "begin isolation level read uncommitted; select postrider.register_worker('w', '0'); commit").await;
}

/// The setting once the call is done, in its transaction.
async fn durability(e: &Engine, inherited: &str, call: &str) -> String {
    run(
        &e.sql,
        &format!("set synchronous_commit = {inherited}; begin; {call}"),
    )
    .await;
    let found = one(&e.sql, "select current_setting('synchronous_commit')").await;
    run(&e.sql, "commit").await;
    // The session keeps its own.
    let own: String = one(&e.sql, "select current_setting('synchronous_commit')").await;
    assert_eq!(own, inherited, "{call}");
    found
}

#[tokio::test]
async fn commits_that_grant_are_synchronous() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let event = lane.owe(1).await[0];
    let (w, id) = (lane.worker, lane.endpoint);
    let report = format!(
        "select postrider.report_attempts('{w}', '{{1}}', '{{{event}}}', '{{{id}}}', '{{1}}', '{{1}}', '{{0}}', '{{1}}', '{{200}}',
                                          '{{null}}', '{{null}}', '{{null}}', '{{null}}')"
    );
    for call in [
        "select postrider.register_worker('w', '0')".to_owned(),
        format!("select postrider.heartbeat('{w}', '{{}}', '{{}}')"),
        format!("select postrider.fan_out('{w}')"),
        format!("select postrider.claim_endpoints('{w}', 10)"),
        report,
    ] {
        for (inherited, found) in [
            ("off", "on"),
            ("local", "on"),
            ("on", "on"),
            ("remote_write", "remote_write"),
            ("remote_apply", "remote_apply"),
        ] {
            assert_eq!(
                durability(e, inherited, &call).await,
                found,
                "{inherited}: {call}"
            );
        }
    }
    // Emitting is the application's choice.
    let emit = "select postrider.emit_event('a.b', '{}')";
    assert_eq!(durability(e, "off", emit).await, "off");
}

/// A refusal tells what to do (`refused` asks for the hint).
#[tokio::test]
async fn refusals_are_of_class_pr() {
    let e = Engine::new().await;
    for call in [
        "select postrider.pause_endpoint(1000)",
        "select postrider.resume_endpoint(1000)",
        "select postrider.enable_endpoint(1000)",
        "select postrider.disable_endpoint(1000)",
        "select postrider.delete_endpoint(1000)",
        "select postrider.rotate_secret(1000)",
        "select postrider.send_test_event(1000)",
        "select postrider.update_endpoint(1000, description => 'x')",
        "select postrider.replay_delivery(gen_random_uuid(), 1000)",
    ] {
        let found = refused(&e.sql, call).await;
        assert!(found.starts_with("PR"), "{call}: {found}");
    }
}

#[tokio::test]
async fn verbs_work_with_an_empty_search_path() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    run(&e.sql, "set search_path = ''").await;
    let event = lane.owe(1).await[0];
    assert_eq!(
        e.fetch(lane.worker, &[lane.endpoint], 10, &[], 1000)
            .await
            .len(),
        1
    );
    lane.report(&[lane.attempt(event, 500)]).await;
    for verb in [
        "pause_endpoint",
        "resume_endpoint",
        "disable_endpoint",
        "enable_endpoint",
        "rotate_secret",
        "send_test_event",
        "delete_endpoint",
    ] {
        lane.verb(verb).await;
    }
    e.release(lane.worker, lane.endpoint, 0).await;
    run(
        &e.sql,
        "select postrider.maintain(); select postrider.maintain(true)",
    )
    .await;
}
