//! Roles: PUBLIC may do nothing, and each role only what it is for.

use std::collections::BTreeSet;

use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{all, endpoint, one, refused, run};

const DENIED: &str = "42501";

/// Goes on as another role, as if it had logged in; `postgres` cannot be told by what a deferred trigger does.
async fn become_role(client: &Client, role: &str) {
    run(client, &format!("set session authorization {role}")).await;
}

/// The functions a role may call, names only, without those that views need.
async fn callable(client: &Client, role: &str) -> BTreeSet<String> {
    let sql = format!(
        "select p.proname::text from pg_proc p where p.pronamespace = 'postrider'::regnamespace
         and has_function_privilege('{role}', p.oid, 'execute') and p.proname !~ '^_' and p.proname <> 'now'"
    );
    all(client, &sql).await.into_iter().collect()
}

/// The tables and views a role may do anything with.
async fn reachable(client: &Client, role: &str) -> BTreeSet<String> {
    let sql = format!(
        "select c.relname || ':' || p from pg_class c, unnest('{{select,insert,update,delete,truncate}}'::text[]) p
         where c.relnamespace = 'postrider'::regnamespace and c.relkind in ('r', 'p', 'v')
         and has_table_privilege('{role}', c.oid, p)"
    );
    all(client, &sql).await.into_iter().collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const READABLE: [&str; 8] = [
    "alerts:select",
    "attempts:select",
    "deliveries:select",
    "endpoint_health:select",
    "event_status:select",
    "policies:select",
    "policy_rungs:select",
    "queue_depth:select",
];

#[tokio::test]
async fn everyone_else_may_do_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let role = format!("{}_nobody", db.name());
    run(&client, &format!("create role {role}")).await;
    assert_eq!(callable(&client, &role).await, set(&[]));
    assert_eq!(reachable(&client, &role).await, set(&[]));
    become_role(&client, &role).await;
    for sql in [
        "select postrider.emit_event('a', '{}')",
        "select postrider.now()",
        "select from postrider.deliveries",
        "select from postrider.endpoint_secrets",
    ] {
        assert_eq!(refused(&client, sql).await, DENIED, "{sql}");
    }
    run(
        &client,
        &format!("reset session authorization; drop role {role}"),
    )
    .await;
}

#[tokio::test]
async fn each_role_may_do_its_own() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    assert_eq!(
        callable(&client, "postrider_emitter").await,
        set(&["emit_event"])
    );
    assert_eq!(reachable(&client, "postrider_emitter").await, set(&[]));
    assert_eq!(
        callable(&client, "postrider_worker").await,
        set(&[
            "claim_endpoints",
            "deregister_worker",
            "fan_out",
            "fetch_deliveries",
            "fetch_due",
            "heartbeat",
            "maintain",
            "register_worker",
            "release_endpoints",
            "report_attempts",
        ])
    );
    assert_eq!(
        reachable(&client, "postrider_worker").await,
        set(&["install:select", "queue_depth:select"])
    );
    let readable: BTreeSet<String> = set(&READABLE);
    assert_eq!(reachable(&client, "postrider_reader").await, readable);
    let operator = reachable(&client, "postrider_operator").await;
    assert!(operator.is_superset(&readable));
    for hidden in [
        "endpoint_secrets",
        "endpoint_state",
        "endpoints",
        "events",
        "pending",
        "outbox",
        "workers",
    ] {
        assert!(
            !operator
                .iter()
                .any(|right| right.starts_with(&format!("{hidden}:"))),
            "{hidden}"
        );
    }
    let verbs = callable(&client, "postrider_operator").await;
    assert!(
        !verbs
            .iter()
            .any(|verb| verb == "emit_event" || verb == "claim_endpoints")
    );
    let read = callable(&client, "postrider_reader").await;
    assert!(
        read.is_subset(&set(&["explain_delivery", "retry_preview"])),
        "{read:?}"
    );
    assert!(read.is_subset(&verbs));
}

#[tokio::test]
async fn a_worker_works_and_reads_no_table() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let event: Uuid = one(&client, "select postrider.emit_event('a', '{}')").await;
    become_role(&client, "postrider_worker").await;
    let worker = crate::fixtures::sql::worker(&client).await;
    run(
        &client,
        &format!("select postrider.heartbeat('{worker}', '{{}}', '{{}}')"),
    )
    .await;
    crate::fixtures::sql::fan_out(&client, worker).await;
    run(
        &client,
        &format!(
            "select postrider.claim_endpoints('{worker}', 10);
             select postrider.fetch_deliveries('{worker}', '{{{id}}}', '{{9}}', '{{}}', '{{}}', 1000000);
             select postrider.report_attempts('{worker}', '{{1}}', '{{{event}}}', '{{{id}}}', '{{1}}', '{{1}}', '{{0}}',
                 '{{5}}', '{{200}}', '{{null}}', '{{null}}', '{{null}}', '{{null}}');
             select postrider.release_endpoints('{worker}', '{{{id}}}', '{{0}}');
             select postrider.maintain();
             select * from postrider.queue_depth;
             select release from postrider.install;
             select postrider.deregister_worker('{worker}')"
        ),
    )
    .await;
    for sql in [
        "select from postrider.endpoint_secrets",
        "select from postrider.pending",
        "update postrider.endpoint_state set owner = null",
        "select postrider.delete_endpoint(1)",
    ] {
        assert_eq!(refused(&client, sql).await, DENIED, "{sql}");
    }
    run(&client, "reset session authorization").await;
    let sql = "select status from postrider.finished";
    assert_eq!(one::<String>(&client, sql).await, "delivered");
}

#[tokio::test]
async fn a_reader_reads_every_view_and_an_operator_operates() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(&client, "insert into postrider.endpoint_stats values (1, date_trunc('hour', now()), 1, 1, 0, '{1,1}')").await;
    become_role(&client, "postrider_operator").await;
    let id = endpoint(&client, "patient").await;
    run(
        &client,
        &format!(
            "select postrider.update_endpoint({id}, description => 'x'); select postrider.pause_endpoint({id});
             select postrider.resume_endpoint({id}); select postrider.disable_endpoint({id});
             select postrider.dismiss_alert(id) from postrider.alerts; select postrider.enable_endpoint({id});
             select postrider.rotate_secret({id}); select postrider.send_test_event({id});
             insert into postrider.policies select (p).* from (
                 select jsonb_populate_record(p, '{{\"name\": \"mine\"}}') as p from postrider.policies p where name = 'brisk') x;
             select postrider.update_endpoint({id}, policy => 'mine')"
        ),
    )
    .await;
    run(&client, "reset session authorization").await;
    let worker = crate::fixtures::sql::worker(&client).await;
    crate::fixtures::sql::fan_out(&client, worker).await;
    for role in ["postrider_reader", "postrider_operator"] {
        become_role(&client, role).await;
        for view in READABLE {
            let view = view.trim_end_matches(":select");
            run(&client, &format!("select * from postrider.{view}")).await;
        }
        run(&client, "select * from postrider.retry_preview('patient')").await;
        run(&client, "reset session authorization").await;
    }
    become_role(&client, "postrider_operator").await;
    run(&client, &format!("select postrider.delete_endpoint({id})")).await;
    become_role(&client, "postrider_reader").await;
    assert_eq!(
        refused(&client, "select postrider.pause_endpoint(1)").await,
        DENIED
    );
    assert_eq!(
        refused(&client, "delete from postrider.alerts").await,
        DENIED
    );
}

#[tokio::test]
async fn what_was_granted_too_much_is_taken_back() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        "grant select on postrider.endpoint_secrets to postrider_reader, public;
         grant execute on function postrider.delete_endpoint(bigint) to postrider_emitter, public;
         revoke execute on function postrider.maintain(boolean) from postrider_worker;
         grant create on schema postrider to public;
         select postrider._grant()",
    )
    .await;
    assert_eq!(reachable(&client, "postrider_reader").await, set(&READABLE));
    assert_eq!(
        callable(&client, "postrider_emitter").await,
        set(&["emit_event"])
    );
    assert!(
        callable(&client, "postrider_worker")
            .await
            .contains("maintain")
    );
    let sql = "select has_schema_privilege('postrider_emitter', 'postrider', 'create')";
    assert!(!one::<bool>(&client, sql).await);
}
