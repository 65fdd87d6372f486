//! Every statement of `demo` and `dev`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Instant;

use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

use super::Emitted;
use super::cast::{Endpoint, Part};

/// Makes the database that the URL names.
pub async fn create_database(client: &Client, name: &str) -> Result<(), Error> {
    client
        .batch_execute(&format!(
            "create database {name} encoding 'UTF8' template template0"
        ))
        .await
}

/// The receivers are plain HTTP on loopback.
pub async fn allow_http(client: &Client) -> Result<(), Error> {
    client
        .batch_execute("update postrider.settings set allow_http = true")
        .await
}

/// A copy of `patient`, its ladder too, whose first retry comes sooner.
pub async fn hasty_policy(client: &Client, name: &str, base_s: u32) -> Result<(), Error> {
    let change = serde_json::json!({
        "name": name,
        "description": "patient, with a shorter first wait, for the demo",
        "backoff_base": format!("{base_s} seconds"),
    });
    client
        .execute(
            "insert into postrider.policies
             select (jsonb_populate_record(p, $1::jsonb)).* from postrider.policies p where p.name = 'patient'",
            &[&change],
        )
        .await?;
    client
        .execute(
            "insert into postrider.policy_rungs (policy, rung, failures, failing_for, pause)
             select $1, rung, failures, failing_for, pause from postrider.policy_rungs where policy = 'patient'",
            &[&name],
        )
        .await?;
    Ok(())
}

/// Creates an endpoint as an operator would.
pub async fn create_endpoint(client: &Client, part: Part, url: &str) -> Result<Endpoint, Error> {
    let row = client
        .query_one(
            "select endpoint_id, secret from postrider.create_endpoint(
                 url => $1, event_types => $2, tenant => $3, description => $4, policy => $5,
                 rate => $6::int4, burst => $7, concurrency => $8, signature => $9)",
            &[
                &url,
                &part.event_types,
                &part.tenant,
                &part.description,
                &part.policy,
                &part.rate,
                &part.burst,
                &part.concurrency,
                &part.style.name(),
            ],
        )
        .await?;
    Ok(Endpoint {
        id: row.try_get(0)?,
        secret: row.try_get(1)?,
        part,
    })
}

/// Emits one event in a transaction of its own.
pub async fn emit(
    client: &Client,
    tenant: &'static str,
    event_type: &'static str,
    body: Cow<'static, str>,
) -> Result<Emitted, Error> {
    let row = client
        .query_one(
            "select postrider.emit_event($1, $2::text, tenant => $3)",
            &[&event_type, &body, &tenant],
        )
        .await?;
    Ok(Emitted {
        id: row.try_get(0)?,
        tenant,
        event_type,
        body,
        committed: Instant::now(),
    })
}

/// Emits several events in one transaction.
pub async fn emit_together(
    client: &Client,
    tenant: &'static str,
    event_type: &'static str,
    bodies: Vec<String>,
) -> Result<Vec<Emitted>, Error> {
    let rows = client
        .query(
            "select postrider.emit_event($1, b.body, tenant => $3), b.body
               from unnest($2::text[]) with ordinality b (body, n) order by b.n",
            &[&event_type, &bodies, &tenant],
        )
        .await?;
    let committed = Instant::now();
    rows.iter()
        .map(|row| {
            Ok(Emitted {
                id: row.try_get(0)?,
                tenant,
                event_type,
                body: Cow::Owned(row.try_get(1)?),
                committed,
            })
        })
        .collect()
}

/// How many deliveries are owed to an endpoint.
pub async fn owed(client: &Client, endpoint: i64) -> Result<usize, Error> {
    let sql =
        "select count(*) from postrider.deliveries where endpoint_id = $1 and status = 'pending'";
    let count: i64 = client.query_one(sql, &[&endpoint]).await?.try_get(0)?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// An endpoint's state in words, and for how many seconds more.
pub async fn state(client: &Client, endpoint: i64) -> Result<(String, Option<f64>), Error> {
    let sql = "select state, extract(epoch from until - clock_timestamp())::float8
                 from postrider.endpoint_health where endpoint_id = $1";
    let row = client.query_one(sql, &[&endpoint]).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// Events not yet fanned out and deliveries not yet ended, in all.
pub async fn unfinished(client: &Client) -> Result<i64, Error> {
    let sql =
        "select (select count(*) from postrider.outbox) + (select count(*) from postrider.pending)";
    client.query_one(sql, &[]).await?.try_get(0)
}

/// How many deliveries of each endpoint are in each status.
pub async fn outcomes(client: &Client) -> Result<Vec<(i64, String, i64)>, Error> {
    let sql = "select endpoint_id, status, count(*) from postrider.deliveries group by 1, 2 order by 1, 2";
    let rows = client.query(sql, &[]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
        .collect()
}

/// An attempt as it was logged.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The event.
    pub event: Uuid,
    /// The endpoint.
    pub endpoint: i64,
    /// Which attempt of the delivery.
    pub number: i32,
    /// The answer's status.
    pub status: Option<i32>,
    /// Who sent it.
    pub worker: Uuid,
}

/// The logged attempts.
pub async fn attempts(client: &Client) -> Result<Vec<Logged>, Error> {
    let sql = "select event_id, endpoint_id, number, http_status, worker from postrider.attempts";
    let rows = client.query(sql, &[]).await?;
    let read = |row: &Row| {
        Ok(Logged {
            event: row.try_get(0)?,
            endpoint: row.try_get(1)?,
            number: row.try_get(2)?,
            status: row.try_get(3)?,
            worker: row.try_get(4)?,
        })
    };
    rows.iter().map(read).collect()
}

/// The live workers: name by id.
pub async fn workers(client: &Client) -> Result<HashMap<Uuid, String>, Error> {
    let rows = client
        .query("select id, name from postrider.workers", &[])
        .await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect()
}

/// The name of the worker that last reported an attempt for an endpoint, if it is live.
pub async fn last_sender(client: &Client, endpoint: i64) -> Result<Option<String>, Error> {
    let sql = "select w.name from postrider.attempts a join postrider.workers w on w.id = a.worker
                where a.endpoint_id = $1 order by a.started_at desc limit 1";
    let row = client.query_opt(sql, &[&endpoint]).await?;
    row.map(|row| row.try_get(0)).transpose()
}
