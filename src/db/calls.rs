//! The calls.

use std::{sync::Arc, time::Duration};

use deadpool_postgres::Pool;
use tokio_postgres::{Client, Row, types::Type};
use uuid::Uuid;

use super::{
    Attempt, Beat, Claim, DbError, FanOut, Fetched, Verdict, WantedRefill,
    held::HeldBytes,
    statements::{Params, Statements, explicit},
};

/// The worker's way to the database.
#[derive(Clone)]
pub struct Db {
    statements: Arc<Statements>,
    held: HeldBytes,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn columns(wanted: &[WantedRefill]) -> (Vec<i64>, Vec<i32>) {
    wanted.iter().map(|w| (w.endpoint_id, w.limit)).unzip()
}

fn beats(rows: &[Row]) -> Result<(Vec<Beat>, i64), DbError> {
    let beats = rows
        .iter()
        .map(|row| {
            Ok(Beat {
                worker: row.try_get("peer")?,
                beat: row.try_get("beat")?,
            })
        })
        .collect::<Result<Vec<_>, tokio_postgres::Error>>()?;
    let clock_us = match rows.last() {
        Some(row) => row.try_get("clock_us")?,
        None => return Err(DbError::LeaseGone("no live worker".into())),
    };
    Ok((beats, clock_us))
}

/// Registers on a connection of the caller's: heartbeats do not share the pool. Returns the worker's id,
/// the live workers, and the database clock in microseconds since 1970.
pub async fn register(
    client: &Client,
    name: &str,
    version: &str,
) -> Result<(Uuid, Vec<Beat>, i64), DbError> {
    let rows = explicit(
        client,
        "select worker, peer, beat, clock_us from postrider.register_worker($1, $2)",
        &[(&name, Type::TEXT), (&version, Type::TEXT)],
    )
    .await?;
    let worker = match rows.first() {
        Some(row) => row.try_get("worker")?,
        None => return Err(DbError::Refused("register_worker returned no row".into())),
    };
    let (peers, clock_us) = beats(&rows)?;
    Ok((worker, peers, clock_us))
}

/// Beats, and ends the leases of `dead`. Returns the live workers, the database clock in microseconds, and
/// how many endpoints are owned over the fleet.
pub async fn heartbeat(
    client: &Client,
    worker: Uuid,
    dead: &[Beat],
) -> Result<(Vec<Beat>, i64, i64), DbError> {
    let ids: Vec<Uuid> = dead.iter().map(|d| d.worker).collect();
    let counts: Vec<i64> = dead.iter().map(|d| d.beat).collect();
    let rows = explicit(
        client,
        "select peer, beat, clock_us, owned from postrider.heartbeat($1, $2, $3)",
        &[
            (&worker, Type::UUID),
            (&ids, Type::UUID_ARRAY),
            (&counts, Type::INT8_ARRAY),
        ],
    )
    .await?;
    let (peers, clock_us) = beats(&rows)?;
    let owned = rows.last().map_or(Ok(0), |row| row.try_get("owned"))?;
    Ok((peers, clock_us, owned))
}

impl Db {
    /// Calls go over this pool.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self {
            statements: Arc::new(Statements::new(pool)),
            held: HeldBytes::default(),
        }
    }

    /// Bytes of the fetched bodies that are still held somewhere.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.count()
    }

    /// Turns events into deliveries. Then, in a transaction of its own, fetches for those of `idle` that something is due
    /// for: while bodies are on their way to somebody who may not read, nothing is locked.
    pub async fn fan_out(
        &self,
        worker: Uuid,
        idle: &[WantedRefill],
        max_bytes: i64,
    ) -> (Result<FanOut, DbError>, Result<Vec<Fetched>, DbError>) {
        let sql = format!("select {} from postrider.fan_out($1)", FanOut::COLUMNS);
        let params: Params<'_> = &[(&worker, Type::UUID)];
        if idle.is_empty() {
            let rows = self.statements.one(&sql, params).await;
            return (rows.and_then(|rows| FanOut::of(&rows)), Ok(Vec::new()));
        }
        let (ids, limits) = columns(idle);
        let fetch: Params<'_> = &[
            (&worker, Type::UUID),
            (&ids, Type::INT8_ARRAY),
            (&limits, Type::INT4_ARRAY),
            (&max_bytes, Type::INT8),
        ];
        let fetch_sql = format!(
            "select {} from postrider.fetch_due($1, $2, $3, $4)",
            Fetched::COLUMNS
        );
        match self
            .statements
            .two((&sql, params), (&fetch_sql, fetch))
            .await
        {
            Ok([fan_out, fetched]) => (
                fan_out.and_then(|rows| FanOut::of(&rows)),
                fetched.and_then(|rows| Fetched::of(&rows, &self.held)),
            ),
            Err(error) => (Err(error), Ok(Vec::new())),
        }
    }

    /// Takes due endpoints; with `include_owned`, also names those that the worker owns already.
    pub async fn claim(
        &self,
        worker: Uuid,
        max: usize,
        include_owned: bool,
    ) -> Result<Claim, DbError> {
        let max = i32::try_from(max).unwrap_or(i32::MAX);
        let rows = self
            .statements
            .one(
                &format!(
                    "select {} from postrider.claim_endpoints($1, $2, $3)",
                    Claim::COLUMNS
                ),
                &[
                    (&worker, Type::UUID),
                    (&max, Type::INT4),
                    (&include_owned, Type::BOOL),
                ],
            )
            .await?;
        Claim::of(&rows)
    }

    /// Fetches what is due for these endpoints, leaving out what is in hand (`skip`).
    pub async fn fetch(
        &self,
        worker: Uuid,
        wanted: &[WantedRefill],
        skip: &[(Uuid, i64)],
        max_bytes: i64,
    ) -> Result<Vec<Fetched>, DbError> {
        let (ids, limits) = columns(wanted);
        let skip_events: Vec<Uuid> = skip.iter().map(|s| s.0).collect();
        let skip_endpoints: Vec<i64> = skip.iter().map(|s| s.1).collect();
        let rows = self
            .statements
            .one(
                &format!(
                    "select {} from postrider.fetch_deliveries($1, $2, $3, $4, $5, $6)",
                    Fetched::COLUMNS
                ),
                &[
                    (&worker, Type::UUID),
                    (&ids, Type::INT8_ARRAY),
                    (&limits, Type::INT4_ARRAY),
                    (&skip_events, Type::UUID_ARRAY),
                    (&skip_endpoints, Type::INT8_ARRAY),
                    (&max_bytes, Type::INT8),
                ],
            )
            .await?;
        Fetched::of(&rows, &self.held)
    }

    /// Reports a batch of attempts. Repeating it changes nothing.
    pub async fn report(
        &self,
        worker: Uuid,
        attempts: &[Attempt],
    ) -> Result<Vec<Verdict>, DbError> {
        macro_rules! column {
            ($of:expr) => {
                attempts.iter().map($of).collect::<Vec<_>>()
            };
        }
        let seqs = column!(|a| a.seq);
        let events = column!(|a| a.event_id);
        let endpoints = column!(|a| a.endpoint_id);
        let runs = column!(|a| a.run);
        let numbers = column!(|a| a.number);
        let ended_ago = column!(|a| millis(a.ended.elapsed()));
        let durations = column!(|a| i32::try_from(a.duration.as_millis()).unwrap_or(i32::MAX));
        let statuses = column!(|a| a.http_status.map(i32::from));
        let codes = column!(|a| a.error_code);
        let errors = column!(|a| a.error.as_deref());
        // An interval holds no more than some hundred million years; the policy cuts at a day.
        let waits = column!(|a| a.wait.map(|w| millis(w).min(31_536_000_000)));
        let answers = column!(|a| a.answer.as_deref());
        let rows = self
            .statements
            .one(
                &format!(
                    "select {} from postrider.report_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                    Verdict::COLUMNS
                ),
                &[
                    (&worker, Type::UUID),
                    (&seqs, Type::INT8_ARRAY),
                    (&events, Type::UUID_ARRAY),
                    (&endpoints, Type::INT8_ARRAY),
                    (&runs, Type::INT4_ARRAY),
                    (&numbers, Type::INT4_ARRAY),
                    (&ended_ago, Type::INT8_ARRAY),
                    (&durations, Type::INT4_ARRAY),
                    (&statuses, Type::INT4_ARRAY),
                    (&codes, Type::TEXT_ARRAY),
                    (&errors, Type::TEXT_ARRAY),
                    (&waits, Type::INT8_ARRAY),
                    (&answers, Type::TEXT_ARRAY),
                ],
            )
            .await?;
        rows.iter().map(Verdict::of).collect()
    }

    /// Gives endpoints up, with how far ahead of now their pace stands. Returns those that it could not, since
    /// a transaction holds them.
    pub async fn release(
        &self,
        worker: Uuid,
        endpoints: &[(i64, Duration)],
    ) -> Result<Vec<i64>, DbError> {
        let ids: Vec<i64> = endpoints.iter().map(|e| e.0).collect();
        let ahead: Vec<i64> = endpoints.iter().map(|e| millis(e.1)).collect();
        let rows = self
            .statements
            .one(
                "select endpoint_id from postrider.release_endpoints($1, $2, $3) r (endpoint_id)",
                &[
                    (&worker, Type::UUID),
                    (&ids, Type::INT8_ARRAY),
                    (&ahead, Type::INT8_ARRAY),
                ],
            )
            .await?;
        Ok(rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?)
    }

    /// Ends the lease: cleanly, or as lapsed.
    pub async fn deregister(&self, worker: Uuid, lapsed: bool) -> Result<(), DbError> {
        self.statements
            .one(
                "select from postrider.deregister_worker($1, $2)",
                &[(&worker, Type::UUID), (&lapsed, Type::BOOL)],
            )
            .await?;
        Ok(())
    }

    /// Looks after partitions, retention and time to live; does nothing when another worker is at it. Returns
    /// whether there is more to do at once.
    pub async fn maintain(&self) -> Result<bool, DbError> {
        let sql = "select coalesce((postrider.maintain() ->> 'more')::boolean, false)";
        let rows = self.statements.one(sql, &[]).await?;
        Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
    }
}
