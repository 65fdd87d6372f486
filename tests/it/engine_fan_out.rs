//! fan_out: who gets an event, and what state its deliveries begin in.

use uuid::Uuid;

use crate::fixtures::engine::{Engine, all, count, one, run};

async fn receivers(e: &Engine, event: Uuid) -> Vec<i64> {
    let sql =
        format!("select endpoint_id from postrider.pending where event_id = '{event}' order by 1");
    all(&e.sql, &sql).await
}

#[tokio::test]
async fn patterns_match_whole_parts_and_each_endpoint_once() {
    let e = Engine::new().await;
    let all_types = e.endpoint("").await;
    let family = e.endpoint("event_types => '{invoice.*}'").await;
    let exact = e.endpoint("event_types => '{invoice.paid}'").await;
    let deep = e.endpoint("event_types => '{invoice.paid.*}'").await;
    let several = e
        .endpoint("event_types => '{*,invoice.*,invoice.paid,other.*}'")
        .await;
    let none = e.endpoint("event_types => '{}'").await;
    let mut cases = Vec::new();
    for (event_type, receiving) in [
        ("invoice.paid", vec![all_types, family, exact, several]),
        ("invoice.paid.late", vec![all_types, family, deep, several]),
        ("invoice", vec![all_types, several]),
        ("invoices.paid", vec![all_types, several]),
        ("INVOICE.paid", vec![all_types, several]),
        ("x.invoice.paid", vec![all_types, several]),
    ] {
        cases.push((
            e.emit(&format!("'{event_type}', '{{}}'")).await,
            event_type,
            receiving,
        ));
    }
    e.fan_out().await;
    for (event, event_type, receiving) in cases {
        assert_eq!(receivers(&e, event).await, receiving, "{event_type}");
    }
    // Named, an endpoint gets it alone and whatever its subscriptions.
    let event = e
        .emit(&format!("'a.b', '{{}}', endpoint_id => {none}"))
        .await;
    e.fan_out().await;
    assert_eq!(receivers(&e, event).await, [none]);
}

#[tokio::test]
async fn a_tenant_sees_its_own_events_only() {
    let e = Engine::new().await;
    let mine = e.endpoint("tenant => 'mine'").await;
    let other = e.endpoint("tenant => 'other'").await;
    e.endpoint("").await;
    let to_mine = e.emit("'a.b', '{}', tenant => 'mine'").await;
    let to_other = e.emit("'a.b', '{}', 'other'").await;
    let to_nobody = e.emit("'a.b', '{}', tenant => 'nobody'").await;
    e.fan_out().await;
    assert_eq!(receivers(&e, to_mine).await, [mine]);
    assert_eq!(receivers(&e, to_other).await, [other]);
    assert!(receivers(&e, to_nobody).await.is_empty());
    assert_eq!(count(&e.sql, "postrider.outbox").await, 0);
}

#[tokio::test]
async fn subscribers_are_those_at_fan_out() {
    let e = Engine::new().await;
    let leaving = e.endpoint("").await;
    let event = e.emit("'a.b', '{}'").await;
    let coming = e.endpoint("").await;
    run(
        &e.sql,
        &format!("select postrider.update_endpoint({leaving}, event_types => '{{c.d}}')"),
    )
    .await;
    e.fan_out().await;
    assert_eq!(receivers(&e, event).await, [coming]);
}

#[tokio::test]
async fn a_delivery_is_due_now_or_at_deliver_at_and_lives_from_there() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let now = e.emit("'a.b', '{}'").await;
    let later = e
        .emit("'a.b', '{}', deliver_at => postrider.now() + interval '2 days'")
        .await;
    let past = e
        .emit("'a.b', '{}', deliver_at => postrider.now() - interval '1 day'")
        .await;
    e.fan_out().await;
    let hours = async |event: Uuid, column: &str| -> i32 {
        let sql = format!(
            "select round(extract(epoch from {column} - postrider.now()) / 3600)::int from postrider.pending where event_id = '{event}'"
        );
        one(&e.sql, &sql).await
    };
    assert_eq!(
        (hours(now, "due_at").await, hours(now, "expires_at").await),
        (0, 72)
    );
    assert_eq!(
        (
            hours(later, "due_at").await,
            hours(later, "expires_at").await
        ),
        (48, 120)
    );
    assert_eq!(
        (hours(past, "due_at").await, hours(past, "expires_at").await),
        (0, 48)
    );
    assert!(
        e.state::<bool>(endpoint, "next_claim_at <= postrider.now()")
            .await
    );
    // Before its time it is neither claimed for nor fetched.
    let worker = e.worker().await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
    assert_eq!(
        e.fetch(worker, &[endpoint], 10, &[], 1_000_000).await.len(),
        2
    );
    e.pass(2 * 86_400 + 1).await;
    let found = e.fetch(worker, &[endpoint], 10, &[], 1_000_000).await;
    assert_eq!(found.iter().filter(|f| f.event == later).count(), 1);
}

#[tokio::test]
async fn while_disabled_patient_waits_and_brisk_skips() {
    let e = Engine::new().await;
    let patient = e.endpoint("policy => 'patient'").await;
    let brisk = e.endpoint("policy => 'brisk'").await;
    let before = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    for endpoint in [patient, brisk] {
        run(
            &e.sql,
            &format!("select postrider.disable_endpoint({endpoint})"),
        )
        .await;
    }
    let event = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    // What was pending waits under both.
    assert_eq!(receivers(&e, before).await, [patient, brisk]);
    assert_eq!(receivers(&e, event).await, [patient]);
    assert_eq!(e.ended(event, brisk).await.as_deref(), Some("skipped"));
    let reason: String = one(
        &e.sql,
        "select reason from postrider.finished where status = 'skipped'",
    )
    .await;
    assert!(reason.contains("disabled"), "{reason}");
    for endpoint in [patient, brisk] {
        assert!(e.state::<bool>(endpoint, "next_claim_at is null").await);
    }
    let worker = e.worker().await;
    e.pass(3600).await;
    assert!(e.claim(worker, 10).await.is_empty());
    // Enabled, what waited is due; what was skipped can be replayed.
    for endpoint in [patient, brisk] {
        run(
            &e.sql,
            &format!("select postrider.enable_endpoint({endpoint})"),
        )
        .await;
    }
    run(
        &e.sql,
        &format!("select postrider.replay_delivery('{event}', {brisk})"),
    )
    .await;
    let mut claimed = e.claim(worker, 10).await;
    claimed.sort_unstable();
    assert_eq!(claimed, [patient, brisk]);
    assert_eq!(
        e.fetch(worker, &[patient, brisk], 10, &[], 1_000_000)
            .await
            .len(),
        4
    );
}

#[tokio::test]
async fn a_target_deleted_before_fan_out_is_cancelled_with_the_reason() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let named = e
        .emit(&format!("'a.b', '{{}}', endpoint_id => {endpoint}"))
        .await;
    let subscribed = e.emit("'a.b', '{}'").await;
    run(
        &e.sql,
        &format!("select postrider.delete_endpoint({endpoint})"),
    )
    .await;
    e.fan_out().await;
    assert_eq!(e.ended(named, endpoint).await.as_deref(), Some("cancelled"));
    let reason: String = one(&e.sql, "select reason from postrider.finished").await;
    assert!(reason.contains("deleted"), "{reason}");
    assert!(e.ended(subscribed, endpoint).await.is_none());
    assert_eq!(count(&e.sql, "postrider.pending").await, 0);
}

#[tokio::test]
async fn while_paused_deliveries_wait_for_the_end_of_the_pause() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    let worker = e.worker().await;
    run(
        &e.sql,
        &format!(
            "select postrider.pause_endpoint({endpoint}, postrider.now() + interval '1 hour')"
        ),
    )
    .await;
    let event = e.emit("'a.b', '{}'").await;
    e.fan_out().await;
    assert_eq!(receivers(&e, event).await, [endpoint]);
    assert!(
        e.state::<bool>(endpoint, "next_claim_at = paused_until")
            .await
    );
    assert!(e.claim(worker, 10).await.is_empty());
    e.pass(3601).await;
    assert_eq!(e.claim(worker, 10).await, [endpoint]);
}

#[tokio::test]
async fn no_delivery_is_due_below_the_lowest_live_key_or_after_the_clock() {
    let e = Engine::new().await;
    let endpoint = e.endpoint("").await;
    run(
        &e.sql,
        &format!("insert into postrider.low_keys values ({endpoint}, postrider.now() + interval '1 minute')"),
    )
    .await;
    e.emit("'a.b', '{}', deliver_at => postrider.now() - interval '1 hour'")
        .await;
    e.fan_out().await;
    let sql = format!(
        "select min(p.due_at) >= max(k.low_due_at) and max(p.due_at) <= postrider.now() from postrider.pending p
           join postrider.low_keys k using (endpoint_id) where k.endpoint_id = {endpoint}"
    );
    assert!(one::<bool>(&e.sql, &sql).await);
}

/// So that whoever fanned out claims then, and only then, heard or not.
#[tokio::test]
async fn it_says_whether_there_is_something_to_claim() {
    let e = Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    let claimable = format!("select claimable from postrider.fan_out('{worker}')");
    assert!(!one::<bool>(&e.sql, &claimable).await);
    let later = "'a.b', '{}', deliver_at => postrider.now() + interval '1 h'";
    for arguments in [later, "'a.b', '{}'"] {
        e.emit(arguments).await;
        assert!(one::<bool>(&e.sql, &claimable).await);
    }
    assert_eq!(e.claim(worker, 10).await.len(), 1);
    e.emit("'a.b', '{}'").await;
    assert!(!one::<bool>(&e.sql, &claimable).await);
}
