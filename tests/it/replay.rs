//! Replay: an ended delivery is sent once more, as a run of its own.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{attempt, emit, endpoint, fan_out, one, refused, run, worker};

fn replay(event: Uuid, id: i64) -> String {
    format!("select postrider.replay_delivery('{event}', {id})")
}

/// The delivery as its view shows it.
async fn shown(client: &Client, event: Uuid) -> String {
    let sql = format!(
        "select format('run %s %s %s attempts, %s', run, status, attempts,
                case when finished_at is null then 'open' else 'ended' end)
         from postrider.deliveries where event_id = '{event}'"
    );
    one(client, &sql).await
}

/// An endpoint, a worker, and an event delivered to it.
async fn delivered(client: &Client) -> (i64, Uuid, Uuid) {
    let id = endpoint(client, "patient").await;
    let event = emit(client, "a").await;
    let worker = worker(client).await;
    fan_out(client, worker).await;
    attempt(client, worker, event, id, 200).await;
    (id, worker, event)
}

#[tokio::test]
async fn an_ended_delivery_is_owed_again() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let (id, worker, event) = delivered(&client).await;
    assert_eq!(
        shown(&client, event).await,
        "run 1 delivered 1 attempts, ended"
    );
    run(
        &client,
        &format!("select postrider.release_endpoints('{worker}', '{{{id}}}', '{{0}}')"),
    )
    .await;
    db.advance_clock(Duration::from_secs(100_000)).await;
    run(&client, &replay(event, id)).await;
    assert_eq!(
        shown(&client, event).await,
        "run 2 pending 0 attempts, open"
    );
    let sql = "select (p.due_at <= postrider.now() and s.next_claim_at = p.due_at
                       and p.expires_at - p.due_at = '72 hours')
               from postrider.pending p join postrider.endpoint_state s using (endpoint_id)";
    assert!(one::<bool>(&client, sql).await);
    assert_eq!(refused(&client, &replay(event, id)).await, "PR019");
    attempt(&client, worker, event, id, 404).await;
    assert_eq!(
        shown(&client, event).await,
        "run 2 rejected 1 attempts, ended"
    );
    run(&client, &replay(event, id)).await;
    assert_eq!(
        shown(&client, event).await,
        "run 3 pending 0 attempts, open"
    );
    let status: String = one(
        &client,
        &format!(
            "select format('%s %s %s %s %s', state, deliveries, pending, delivered, failed)
                  from postrider.event_status where event_id = '{event}'"
        ),
    )
    .await;
    assert_eq!(status, "fanned_out 1 1 0 0");
}

#[tokio::test]
async fn what_cannot_be_replayed() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let (id, worker, event) = delivered(&client).await;
    let other = emit(&client, "a").await;
    assert_eq!(
        refused(&client, &replay(other, id)).await,
        "PR019",
        "not fanned out"
    );
    fan_out(&client, worker).await;
    assert_eq!(
        refused(&client, &replay(other, id)).await,
        "PR019",
        "pending"
    );
    assert_eq!(
        refused(&client, &replay(Uuid::new_v4(), id)).await,
        "PR019",
        "no event"
    );
    let late = endpoint(&client, "patient").await;
    assert_eq!(
        refused(&client, &replay(event, late)).await,
        "PR019",
        "not subscribed then"
    );
    run(
        &client,
        &format!("delete from postrider.events where id = '{event}'"),
    )
    .await;
    assert_eq!(
        refused(&client, &replay(event, id)).await,
        "PR019",
        "past retention"
    );
    run(&client, &format!("select postrider.delete_endpoint({id})")).await;
    assert_eq!(
        refused(&client, &replay(event, id)).await,
        "PR004",
        "deleted"
    );
    let sql = "select count(*) from postrider.pending where run > 1";
    assert_eq!(one::<i64>(&client, sql).await, 0);
}

#[tokio::test]
async fn of_many_replays_at_once_one_is_made() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let (id, _, event) = delivered(&client).await;
    let clients = join_all((0..6).map(|_| db.connect())).await;
    let call = replay(event, id);
    let codes = join_all(clients.iter().map(|client| refused(client, &call))).await;
    assert_eq!(
        codes.iter().filter(|code| code.is_empty()).count(),
        1,
        "{codes:?}"
    );
    assert_eq!(
        codes.iter().filter(|code| *code == "PR019").count(),
        5,
        "{codes:?}"
    );
}

#[tokio::test]
async fn a_replay_keeps_retention_away_until_it_commits() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let (id, _, event) = delivered(&client).await;
    run(&client, "begin").await;
    run(&client, &replay(event, id)).await;
    let other = db.connect().await;
    let leaf: String = one(
        &other,
        &format!("select tableoid::regclass::text from postrider.events where id = '{event}'"),
    )
    .await;
    let truncate = format!("set lock_timeout = '50ms'; truncate only {leaf}");
    assert_eq!(refused(&other, &truncate).await, "55P03");
    run(&client, "commit").await;
    let owed = "select count(*) from postrider.pending";
    assert_eq!(one::<i64>(&other, owed).await, 1);
}

#[tokio::test]
async fn a_replay_to_a_paused_or_disabled_endpoint_waits() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let (id, _, event) = delivered(&client).await;
    run(&client, &format!("select postrider.disable_endpoint({id})")).await;
    run(&client, &replay(event, id)).await;
    let mark = "select next_claim_at::text from postrider.endpoint_state";
    assert_eq!(one::<Option<String>>(&client, mark).await, None);
    run(&client, &format!("select postrider.pause_endpoint({id})")).await;
    run(&client, &format!("select postrider.enable_endpoint({id})")).await;
    assert_eq!(
        one::<Option<String>>(&client, mark).await.as_deref(),
        Some("infinity")
    );
    run(&client, &format!("select postrider.resume_endpoint({id})")).await;
    let due = "select next_claim_at <= postrider.now() from postrider.endpoint_state";
    assert!(one::<bool>(&client, due).await);
}
