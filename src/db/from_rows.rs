//! Reading what the functions return.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use tokio_postgres::Row;
use uuid::Uuid;

use super::{
    Claim, Claimed, DbError, Delivery, FanOut, Fetched, Settings, Verdict, held::HeldBytes,
};

/// From a count of milliseconds, which is never negative where it comes from.
fn duration(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

impl FanOut {
    pub(super) const COLUMNS: &str = "events, deliveries, more, busy, due, claimable";

    pub(super) fn of(rows: &[Row]) -> Result<Self, DbError> {
        let Some(row) = rows.first() else {
            return Ok(Self::default());
        };
        Ok(Self {
            events: row.try_get(0)?,
            deliveries: row.try_get(1)?,
            more: row.try_get(2)?,
            busy: row.try_get(3)?,
            due: row.try_get(4)?,
            claimable: row.try_get(5)?,
        })
    }
}

impl Claim {
    pub(super) const COLUMNS: &str = "endpoint_id, pace_ahead_ms, next_claim_in_ms";

    pub(super) fn of(rows: &[Row]) -> Result<Self, DbError> {
        let mut claim = Self::default();
        for row in rows {
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
}

impl Fetched {
    pub(super) const COLUMNS: &str =
        "endpoint_id, settings, event_id, run, number, event_type, body, expires_in_ms, overdue_ms";

    /// Rows of settings come first, one for each endpoint.
    pub(super) fn of(rows: &[Row], held: &HeldBytes) -> Result<Vec<Self>, DbError> {
        let fetched_at = Instant::now();
        let mut fetched: Vec<Self> = Vec::new();
        let mut places: HashMap<i64, usize> = HashMap::new();
        for row in rows {
            let endpoint_id: i64 = row.try_get(0)?;
            let event_id: Option<Uuid> = row.try_get(2)?;
            match (event_id, places.get(&endpoint_id)) {
                (None, _) => {
                    let settings: Option<serde_json::Value> = row.try_get(1)?;
                    places.insert(endpoint_id, fetched.len());
                    fetched.push(Self {
                        endpoint_id,
                        settings: settings.map(|value| {
                            serde_json::from_value::<Settings>(value).map_err(|e| e.to_string())
                        }),
                        deliveries: Vec::new(),
                    });
                }
                (Some(event_id), Some(&place)) => {
                    let body: &str = row.try_get(6)?;
                    let delivery = Delivery {
                        event_id,
                        run: row.try_get(3)?,
                        number: row.try_get(4)?,
                        event_type: row.try_get(5)?,
                        body: held.hold(body),
                        expires_in: duration(row.try_get(7)?),
                        overdue: duration(row.try_get(8)?),
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
}

impl Verdict {
    pub(super) const COLUMNS: &str =
        "endpoint_id, owned, stopped, paused_ms, probing, next_due_ms, history_lost, held";

    pub(super) fn of(row: &Row) -> Result<Self, DbError> {
        Ok(Self {
            endpoint_id: row.try_get(0)?,
            owned: row.try_get(1)?,
            stopped: row.try_get(2)?,
            paused: duration(row.try_get(3)?),
            probing: row.try_get(4)?,
            next_due: row.try_get::<_, Option<i64>>(5)?.map(duration),
            history_lost: row.try_get(6)?,
            held: row.try_get(7)?,
        })
    }
}
