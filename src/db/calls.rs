//! The calls.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use deadpool_postgres::{Object, Pool};
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};
use uuid::Uuid;

use super::{
    Attempt, Beat, Claim, Claimed, DbError, Delivery, FanOut, Fetched, Settings, Verdict,
    WantedRefill, held::HeldBytes,
};

/// Longest wait for an answer to one call. A connection that exceeds it is dropped.
const CALL_LIMIT: Duration = Duration::from_secs(20);

type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// The worker's way to the database.
#[derive(Clone)]
pub struct Db {
    pool: Pool,
    held: HeldBytes,
    /// The database's default isolation is refused: each transaction says its own.
    explicit: Arc<AtomicBool>,
}

/// One call in a transaction of its own that says its isolation, in one round trip.
async fn call(client: &Client, sql: &str, params: Params<'_>) -> Result<Vec<Row>, DbError> {
    // Biased: polled, and so sent, in this order.
    let (begun, rows, committed) = tokio::join!(
        biased;
        client.batch_execute("begin isolation level read committed"),
        client.query_typed(sql, params),
        client.batch_execute("commit"),
    );
    // After a failed call the commit is a rollback and succeeds: the call's own error comes first.
    let rows = rows?;
    begun?;
    committed?;
    Ok(rows)
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// From a count of milliseconds, which is never negative where it comes from.
fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
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
    let rows = call(
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
    let rows = call(
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
            pool,
            held: HeldBytes::default(),
            explicit: Arc::default(),
        }
    }

    /// Bytes of the fetched bodies that are still held somewhere.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.count()
    }

    /// One call in a transaction of its own. Left to itself a statement is one, and costs both sides a third of the
    /// messages that `begin` and `commit` around it would; rows are complete after its commit only.
    async fn call(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, DbError> {
        let connection = tokio::time::timeout(CALL_LIMIT, self.pool.get())
            .await
            .map_err(|_| DbError::Connection("no connection became free".into()))?
            .map_err(|e| DbError::Connection(e.to_string()))?;
        let result = tokio::time::timeout(CALL_LIMIT, async {
            if !self.explicit.load(Ordering::Relaxed) {
                match connection
                    .query_typed(sql, params)
                    .await
                    .map_err(DbError::from)
                {
                    Err(DbError::Isolation(_)) => self.explicit.store(true, Ordering::Relaxed),
                    result => return result,
                }
            }
            call(&connection, sql, params).await
        })
        .await;
        match result {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                if matches!(error, DbError::Connection(_)) {
                    drop(Object::take(connection));
                }
                Err(error)
            }
            Err(_) => {
                drop(Object::take(connection));
                Err(DbError::Connection(format!(
                    "no answer within {CALL_LIMIT:?}"
                )))
            }
        }
    }

    /// Turns events into deliveries, and fetches at once for those of `idle` that have some now.
    pub async fn fan_out(
        &self,
        worker: Uuid,
        idle: &[WantedRefill],
        max_bytes: i64,
    ) -> Result<FanOut, DbError> {
        let rows = if idle.is_empty() {
            self.call(
                "select events, deliveries, more, busy, due, claimable from postrider.fan_out($1)",
                &[(&worker, Type::UUID)],
            )
            .await?
        } else {
            let (ids, limits) = columns(idle);
            self.call(
                "select f.events, f.deliveries, f.more, f.busy, f.due, f.claimable, \
                        d.endpoint_id, d.settings, d.event_id, d.run, d.number, d.event_type, d.body, \
                        d.expires_in_ms, d.overdue_ms \
                   from postrider.fan_out($1) f \
                   left join lateral ( \
                        select x.* from postrider.fetch_deliveries($1, \
                                   array(select i.id from unnest($2, $3) i (id, max) where i.id = any (f.due)), \
                                   array(select i.max from unnest($2, $3) i (id, max) where i.id = any (f.due)), \
                                   '{}', '{}', $4) x \
                         where f.due && $2) d on true",
                &[
                    (&worker, Type::UUID),
                    (&ids, Type::INT8_ARRAY),
                    (&limits, Type::INT4_ARRAY),
                    (&max_bytes, Type::INT8),
                ],
            )
            .await?
        };
        let Some(row) = rows.first() else {
            return Ok(FanOut::default());
        };
        let fetched = if row.len() > 6 && row.try_get::<_, Option<i64>>(6)?.is_some() {
            self.fetched(&rows, 6)?
        } else {
            Vec::new()
        };
        Ok(FanOut {
            events: row.try_get(0)?,
            deliveries: row.try_get(1)?,
            more: row.try_get(2)?,
            busy: row.try_get(3)?,
            due: row.try_get(4)?,
            claimable: row.try_get(5)?,
            fetched,
        })
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
            .call(
                "select endpoint_id, pace_ahead_ms, next_claim_in_ms from postrider.claim_endpoints($1, $2, $3)",
                &[
                    (&worker, Type::UUID),
                    (&max, Type::INT4),
                    (&include_owned, Type::BOOL),
                ],
            )
            .await?;
        let mut claim = Claim::default();
        for row in &rows {
            match row.try_get::<_, Option<i64>>(0)? {
                Some(endpoint_id) => claim.endpoints.push(Claimed {
                    endpoint_id,
                    pace_ahead: duration(row.try_get(1)?),
                }),
                None => claim.next_in = row.try_get::<_, Option<i64>>(2)?.map(duration),
            }
        }
        Ok(claim)
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
            .call(
                "select endpoint_id, settings, event_id, run, number, event_type, body, expires_in_ms, overdue_ms \
                 from postrider.fetch_deliveries($1, $2, $3, $4, $5, $6)",
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
        self.fetched(&rows, 0)
    }

    /// Rows of `fetch_deliveries`, whose columns begin at `from`.
    fn fetched(&self, rows: &[Row], from: usize) -> Result<Vec<Fetched>, DbError> {
        let fetched_at = Instant::now();
        let mut fetched = Vec::new();
        let mut places: HashMap<i64, usize> = HashMap::new();
        for row in rows {
            let endpoint_id: i64 = row.try_get(from)?;
            let event_id: Option<Uuid> = row.try_get(from + 2)?;
            match (event_id, places.get(&endpoint_id)) {
                (None, _) => {
                    let settings: Option<serde_json::Value> = row.try_get(from + 1)?;
                    places.insert(endpoint_id, fetched.len());
                    fetched.push(Fetched {
                        endpoint_id,
                        settings: settings.map(|value| {
                            serde_json::from_value::<Settings>(value).map_err(|e| e.to_string())
                        }),
                        deliveries: Vec::new(),
                    });
                }
                (Some(event_id), Some(&place)) => {
                    let body: &str = row.try_get(from + 6)?;
                    let delivery = Delivery {
                        event_id,
                        run: row.try_get(from + 3)?,
                        number: row.try_get(from + 4)?,
                        event_type: row.try_get(from + 5)?,
                        body: self.held.hold(body),
                        expires_in: duration(row.try_get(from + 7)?),
                        overdue: duration(row.try_get(from + 8)?),
                        fetched_at,
                    };
                    if let Some(entry) = fetched.get_mut(place) {
                        entry.deliveries.push(delivery);
                    }
                }
                (Some(_), None) => {}
            }
        }
        Ok(fetched)
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
            .call(
                "select endpoint_id, owned, stopped, paused_ms, probing, next_due_ms, history_lost, held \
                 from postrider.report_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
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
        rows.iter()
            .map(|row| {
                Ok(Verdict {
                    endpoint_id: row.try_get(0)?,
                    owned: row.try_get(1)?,
                    stopped: row.try_get(2)?,
                    paused: duration(row.try_get(3)?),
                    probing: row.try_get(4)?,
                    next_due: row.try_get::<_, Option<i64>>(5)?.map(duration),
                    history_lost: row.try_get(6)?,
                    held: row.try_get(7)?,
                })
            })
            .collect()
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
            .call(
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
        self.call(
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
        let rows = self.call(sql, &[]).await?;
        Ok(rows.first().map_or(Ok(false), |row| row.try_get(0))?)
    }
}
