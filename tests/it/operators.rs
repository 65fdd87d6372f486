//! What a person does with an endpoint.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{all, emit, endpoint, fan_out, one, refused, run, worker};

/// When the endpoint may next be claimed: never, now, later or at no time known.
async fn mark(client: &Client, id: i64) -> String {
    let sql = format!(
        "select case when next_claim_at is null then 'never' when next_claim_at <= postrider.now() then 'now'
                     when isfinite(next_claim_at) then 'later' else 'open' end
         from postrider.endpoint_state where endpoint_id = {id}"
    );
    one(client, &sql).await
}

async fn call(client: &Client, call: &str) {
    run(client, &format!("select postrider.{call}")).await;
}

#[tokio::test]
async fn created_with_what_was_asked_for() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql =
        "select endpoint_id || ' ' || secret from postrider.create_endpoint('https://a.example/h')";
    let made: String = one(&client, sql).await;
    let (_, secret) = made.split_once(' ').unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 50);
    run(
        &client,
        "select postrider.create_endpoint('https://a.example/h', '{a.*,b,b}', 't', 'd', 'brisk', 1.5, 2, 3,
             '{\"X-A\": \"1\"}', 'standard', 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw')",
    )
    .await;
    let sql = "select format('%s %s %s %s %s %s %s %s %s', tenant, description, policy, rate, burst, concurrency,
                   headers, signature, (select array_agg(pattern order by pattern) from postrider.subscriptions s
                                         where s.endpoint_id = e.id and s.tenant = e.tenant))
               from postrider.endpoints e order by id";
    assert_eq!(
        all::<String>(&client, sql).await,
        [
            "default  patient    {} stripe {*}",
            "t d brisk 1.5 2 3 {\"X-A\": \"1\"} standard {a.*,b}"
        ]
    );
    let sql = "select count(distinct secret) from (select postrider._new_secret() as secret from generate_series(1, 500)) s";
    assert_eq!(one::<i64>(&client, sql).await, 500);
}

#[tokio::test]
async fn of_many_creations_at_once_one_is_made() {
    let db = TestDb::new().await;
    let clients = join_all((0..6).map(|_| db.connect())).await;
    let sql = "select postrider.create_endpoint('https://a.example/')";
    let codes = join_all(clients.iter().map(|client| refused(client, sql))).await;
    assert_eq!(
        codes.iter().filter(|code| code.is_empty()).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| *code == "PR017").count(),
        5,
        "{codes:?}"
    );
    // Another tenant's endpoint has a pace of its own.
    run(
        &clients[0],
        "select postrider.create_endpoint('https://a.example/', tenant => 'other')",
    )
    .await;
}

#[tokio::test]
async fn an_update_changes_what_it_names() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let row = "select md5(e::text) || (select string_agg(pattern, ',' order by pattern) from postrider.subscriptions)
               from postrider.endpoints e";
    let before: String = one(&client, row).await;
    call(&client, &format!("update_endpoint({id})")).await;
    assert_eq!(
        one::<String>(&client, row).await,
        before,
        "nothing named, not even updated_at"
    );
    call(
        &client,
        &format!("update_endpoint({id}, event_types => '{{a,b}}', rate => 3, policy => 'brisk')"),
    )
    .await;
    call(
        &client,
        &format!("update_endpoint({id}, event_types => '{{b,c.*}}', burst => 4)"),
    )
    .await;
    let shown = "select format('%s %s %s %s %s', policy, rate, burst, concurrency,
                     (select string_agg(pattern, ',' order by pattern) from postrider.subscriptions))
                 from postrider.endpoints";
    assert_eq!(one::<String>(&client, shown).await, "brisk 3 4  b,c.*");
    call(
        &client,
        &format!("update_endpoint({id}, use_policy_pace => true, event_types => '{{}}')"),
    )
    .await;
    assert_eq!(one::<String>(&client, shown).await, "brisk    ");
}

#[tokio::test]
async fn pausing_and_resuming() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let worker = worker(&client).await;
    call(&client, &format!("pause_endpoint({id})")).await;
    assert_eq!(mark(&client, id).await, "never", "nothing is owed");
    emit(&client, "a").await;
    fan_out(&client, worker).await;
    assert_eq!(mark(&client, id).await, "open");
    call(
        &client,
        &format!("pause_endpoint({id}, postrider.now() + interval '1 minute')"),
    )
    .await;
    assert_eq!(mark(&client, id).await, "later");
    call(&client, &format!("resume_endpoint({id})")).await;
    assert_eq!(mark(&client, id).await, "now");
    run(
        &client,
        "update postrider.endpoint_state set failures = 12, failing_since = now() - interval '1 hour';
         update postrider.endpoint_state set rate_limited_until = now() + interval '1 hour', paused_until = 'infinity'",
    )
    .await;
    let sql = "select format('%s %s %s %s', failures, rung, ladder_paused_until is null, paused_until is null)
               from postrider.endpoint_state";
    assert_eq!(one::<String>(&client, sql).await, "12 1 f f");
    call(&client, &format!("resume_endpoint({id})")).await;
    assert_eq!(
        one::<String>(&client, sql).await,
        "12 1 t t",
        "failures stay"
    );
    assert_eq!(
        mark(&client, id).await,
        "later",
        "the endpoint's own pause goes on"
    );
}

#[tokio::test]
async fn an_unchanged_state_is_not_written() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let row = "select ctid::text from postrider.endpoint_state";
    for (once, again) in [
        ("pause_endpoint({})", "pause_endpoint({})"),
        ("resume_endpoint({})", "resume_endpoint({})"),
        ("disable_endpoint({}, 'x')", "disable_endpoint({})"),
        ("enable_endpoint({})", "enable_endpoint({})"),
    ] {
        call(&client, &once.replace("{}", &id.to_string())).await;
        let before: String = one(&client, row).await;
        call(&client, &again.replace("{}", &id.to_string())).await;
        assert_eq!(one::<String>(&client, row).await, before, "{again}");
    }
}

#[tokio::test]
async fn disabled_until_a_person_enables_it() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    for (policy, waiting, skipped) in [("patient", 100, 0), ("brisk", 0, 100)] {
        let id = endpoint(&client, policy).await;
        let worker = worker(&client).await;
        run(
            &client,
            "update postrider.endpoint_state set failures = 5, failing_since = now()",
        )
        .await;
        call(&client, &format!("disable_endpoint({id}, 'moved')")).await;
        let alert = format!(
            "select kind || message from postrider.alerts where endpoint_id = {id} and dismissed_at is null"
        );
        assert!(one::<String>(&client, &alert).await.contains("moved"));
        run(
            &client,
            "select postrider.emit_event('a', '{}') from generate_series(1, 100)",
        )
        .await;
        fan_out(&client, worker).await;
        assert_eq!(mark(&client, id).await, "never");
        let sql = format!(
            "select count(*) filter (where status = 'pending' and reason = 'endpoint disabled')
                    || ' ' || count(*) filter (where status = 'skipped') from postrider.deliveries where endpoint_id = {id}"
        );
        assert_eq!(
            one::<String>(&client, &sql).await,
            format!("{waiting} {skipped}")
        );
        call(&client, &format!("resume_endpoint({id})")).await;
        assert_eq!(mark(&client, id).await, "never", "resuming enables nothing");
        call(&client, &format!("enable_endpoint({id})")).await;
        assert_eq!(
            mark(&client, id).await,
            if waiting > 0 { "now" } else { "never" }
        );
        let state = format!(
            "select format('%s %s %s %s %s', failures, rung, failing_since is null, reason is null, enabled_at is not null)
             from postrider.endpoint_state where endpoint_id = {id}"
        );
        assert_eq!(one::<String>(&client, &state).await, "0 0 t t t");
        assert!(
            client.query(&alert, &[]).await.unwrap().is_empty(),
            "dismissed"
        );
        if skipped > 0 {
            let sql = format!(
                "select postrider.replay_delivery(event_id, endpoint_id) from postrider.deliveries where endpoint_id = {id}"
            );
            run(&client, &sql).await;
            assert_eq!(mark(&client, id).await, "now");
        }
        call(&client, &format!("delete_endpoint({id})")).await;
    }
}

#[tokio::test]
async fn a_dismissed_alert_enables_nothing() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    call(&client, &format!("disable_endpoint({id})")).await;
    call(&client, "dismiss_alert(id) from postrider.alerts").await;
    let seen = "select dismissed_at::text from postrider.alerts";
    let first: String = one(&client, seen).await;
    call(&client, "dismiss_alert(id) from postrider.alerts").await;
    assert_eq!(one::<String>(&client, seen).await, first, "dismissed once");
    let sql = "select state from postrider.endpoint_health";
    assert_eq!(one::<String>(&client, sql).await, "disabled");
}

#[tokio::test]
async fn g23_secrets_rotate_with_an_overlap() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let id = endpoint(&client, "patient").await;
    let valid = "select secret from postrider.endpoint_secrets
                 where expires_at is null or expires_at > postrider.now() order by id desc";
    let first: Vec<String> = all(&client, valid).await;
    let second: String = one(
        &client,
        &format!("select postrider.rotate_secret({id}, '1 hour')"),
    )
    .await;
    assert_eq!(
        all::<String>(&client, valid).await,
        [second.clone(), first[0].clone()]
    );
    let third: String = one(
        &client,
        &format!("select postrider.rotate_secret({id}, '24 hours')"),
    )
    .await;
    db.advance_clock(Duration::from_secs(3601)).await;
    assert_eq!(
        all::<String>(&client, valid).await,
        [third.clone(), second],
        "never lengthened"
    );
    assert_eq!(
        refused(
            &client,
            &format!("select postrider.rotate_secret({id}, secret => '{third}')")
        )
        .await,
        "PR014"
    );
    let fourth: String = one(
        &client,
        &format!("select postrider.rotate_secret({id}, '0')"),
    )
    .await;
    assert_eq!(all::<String>(&client, valid).await, [fourth], "no overlap");
    for _ in 0..4 {
        call(&client, &format!("rotate_secret({id})")).await;
    }
    let before: Vec<String> = all(&client, valid).await;
    assert_eq!(before.len(), 5);
    assert_eq!(
        refused(&client, &format!("select postrider.rotate_secret({id})")).await,
        "PR014"
    );
    assert_eq!(all::<String>(&client, valid).await, before);
    call(&client, &format!("rotate_secret({id}, '0')")).await;
    assert_eq!(all::<String>(&client, valid).await.len(), 1);
}

#[tokio::test]
async fn a_test_event_reaches_its_endpoint_alone() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select endpoint_id from postrider.create_endpoint('https://a.example/', '{never}', 'acme')";
    let id: i64 = one(&client, sql).await;
    run(
        &client,
        "select postrider.create_endpoint('https://b.example/', tenant => 'acme')",
    )
    .await;
    let event: Uuid = one(&client, &format!("select postrider.send_test_event({id})")).await;
    let worker = worker(&client).await;
    fan_out(&client, worker).await;
    let sql = format!(
        "select format('%s %s %s', endpoint_id, tenant, event_type) from postrider.deliveries where event_id = '{event}'"
    );
    assert_eq!(
        all::<String>(&client, &sql).await,
        [format!("{id} acme postrider.test")]
    );
}
