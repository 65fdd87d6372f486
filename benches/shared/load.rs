//! Sessions that do the same thing over and over, and events made beforehand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::cluster::Cluster;
use super::{Result, table};

/// A JSON object of exactly this many bytes.
pub fn body(bytes: usize) -> String {
    let frame = r#"{"pad":""}"#.len();
    format!(r#"{{"pad":"{}"}}"#, "x".repeat(bytes.saturating_sub(frame)))
}

/// Runs a transaction in this many sessions, over and over for this long; how many were committed, and in what
/// time. Begin, statements and commit are sent together, as one round trip.
///
/// A parameter of type text is a body of 1 kB, one of type uuid the transaction's own id, which counts up.
pub async fn sessions(
    cluster: &Cluster,
    count: usize,
    time: Duration,
    statements: &'static [&'static str],
) -> Result<(u64, Duration)> {
    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        let client = cluster.connect().await?;
        let prepared = try_join_all(statements.iter().map(|s| client.prepare(s))).await?;
        clients.push((client, prepared));
    }
    let body: Arc<str> = body(1024).into();
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (client, prepared) in clients {
        let body = Arc::clone(&body);
        tasks.spawn(async move {
            let mut done = 0_u64;
            while start.elapsed() < time {
                transaction(&client, &prepared, &body).await?;
                done += 1;
            }
            Ok::<_, tokio_postgres::Error>(done)
        });
    }
    let mut all = 0;
    while let Some(done) = tasks.join_next().await {
        all += done??;
    }
    Ok((all, start.elapsed()))
}

async fn transaction(
    client: &Client,
    prepared: &[Statement],
    body: &str,
) -> std::result::Result<(), tokio_postgres::Error> {
    let id = next_id();
    let statement = |s: &Statement| {
        let params: Vec<&(dyn ToSql + Sync)> = s
            .params()
            .iter()
            .map(|t| {
                if *t == Type::UUID {
                    &id as &(dyn ToSql + Sync)
                } else {
                    &body
                }
            })
            .collect();
        let s = s.clone();
        async move { client.execute(&s, &params).await }
    };
    // Polled, and so sent, in this order.
    let (begun, done, committed) = tokio::join!(
        biased;
        client.batch_execute("begin"),
        try_join_all(prepared.iter().map(statement)),
        client.batch_execute("commit"),
    );
    done?;
    begun?;
    committed
}

/// An id as version 7 has them: in order of time, so that a plain table is not made slow by ids at random.
fn next_id() -> Uuid {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let count = LAST.fetch_add(1, Ordering::Relaxed);
    Uuid::from_u64_pair(count, rand::random())
}

/// Emits events of 1 kB, those of types `type`.0 to `type`.(`spread` - 1) in turn, 5,000 in a transaction.
pub async fn emit_beforehand(
    cluster: &Cluster,
    event_type: &str,
    spread: i32,
    count: u32,
) -> Result<()> {
    emit_sized(cluster, event_type, spread, count, 1024).await
}

/// The same with bodies of this size.
pub async fn emit_sized(
    cluster: &Cluster,
    event_type: &str,
    spread: i32,
    count: u32,
    bytes: usize,
) -> Result<()> {
    let sql = "select count(postrider.emit_event($1 || '.' || n % $2::int, $3::text))
                 from generate_series($4::int, $5::int - 1) n";
    let emit = cluster.sql.prepare(sql).await?;
    let body = body(bytes);
    let batch = if bytes > 10_000 { 500 } else { 5000 };
    let count = i32::try_from(count)?;
    let mut from = 0;
    while from < count {
        let to = (from + batch).min(count);
        cluster
            .sql
            .execute(&emit, &[&event_type, &spread, &body, &from, &to])
            .await?;
        table::progress(format_args!("emitting: {to} of {count}"));
        from = to;
    }
    table::progress("");
    Ok(())
}

/// Emits events of 1 kB of one type, in one transaction.
pub async fn emit_beforehand_to(cluster: &Cluster, event_type: &str, count: u32) -> Result<()> {
    let sql = "select count(postrider.emit_event($1, $2::text)) from generate_series(1, $3::int)";
    let count = i32::try_from(count)?;
    cluster
        .sql
        .execute(sql, &[&event_type, &body(1024), &count])
        .await?;
    Ok(())
}
