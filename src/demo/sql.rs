//! Every statement of `demo` and `dev`.

use std::borrow::Cow;
use std::time::Instant;

use tokio_postgres::{Client, Error};
use uuid::Uuid;

use super::Emitted;
use super::cast::{Endpoint, Part, SPEC};

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

/// The logged attempts: event, endpoint, number, status.
pub async fn attempts(client: &Client) -> Result<Vec<(Uuid, i64, i32, Option<i32>)>, Error> {
    let sql = "select event_id, endpoint_id, number, http_status from postrider.attempts";
    let rows = client.query(sql, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok((
                row.try_get(0)?,
                row.try_get(1)?,
                row.try_get(2)?,
                row.try_get(3)?,
            ))
        })
        .collect()
}

/// How many workers are registered.
pub async fn workers(client: &Client) -> Result<i64, Error> {
    let sql = "select count(*) from postrider.workers";
    client.query_one(sql, &[]).await?.try_get(0)
}

/// Requests of each live worker: all, and those to the specification's endpoint.
pub async fn requests_by_worker(client: &Client) -> Result<Vec<(String, i64, i64)>, Error> {
    let sql = "select w.name, count(a.seq), count(a.seq) filter (where e.tenant = $1)
                 from postrider.workers w
                 left join postrider.attempts a on a.worker = w.id
                 left join postrider.endpoints e on e.id = a.endpoint_id
                group by w.id, w.name order by w.name";
    let rows = client.query(sql, &[&SPEC]).await?;
    rows.iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
        .collect()
}
