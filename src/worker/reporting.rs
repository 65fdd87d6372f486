//! Reporting: outcomes are held until they are stored, in order, one batch of an endpoint at a time.
//!
//! A batch is whatever came while the last one was under way, so an idle worker reports at once and a busy one
//! in bulk: when more waits than a batch takes, two side by side, each of one half of the endpoints. A report that failed is repeated until it succeeds, and nothing is sent meanwhile: what the
//! database does not know, a later owner would send again. An outcome that the database refuses in every form, or
//! whose endpoint a transaction holds, is set aside and tried again, and stops its own endpoint only.

use std::{
    collections::{BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::engine::{Engine, Event};
use crate::db::{Attempt, Db, DbError, Verdict};

/// Most attempts in one report. Its endpoints are locked meanwhile, for which fan_out waits.
const BATCH: usize = 250;
/// How soon what the database did not take is tried again: at first an endpoint is held by another call of the
/// engine, which takes milliseconds; later by somebody who takes his time.
const RETRY_STUCK: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));
/// The error code of a delivery that ends since its outcome could not be stored.
const UNREPORTABLE: &str = "unreportable";

/// Fewest attempts for which a second report begins beside another.
const WORTH_A_SECOND: usize = BATCH / 2;

/// Which endpoints a report is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    All,
    /// Those with an odd id, or those with an even one.
    Half {
        odd: bool,
    },
}

impl Part {
    fn has(self, attempt: &Attempt) -> bool {
        match self {
            Self::All => true,
            Self::Half { odd } => odd == (attempt.endpoint_id % 2 != 0),
        }
    }
}

/// What became of a batch.
pub(super) struct Reported {
    pub(super) part: Part,
    pub(super) verdicts: Vec<Verdict>,
    pub(super) stored: Vec<Attempt>,
    /// To be repeated: the database could not be asked.
    pub(super) unstored: Vec<Attempt>,
    /// Refused by the database in every form, or held (see [`Verdict`]).
    pub(super) stuck: Vec<Attempt>,
    pub(super) error: Option<DbError>,
    pub(super) took: Duration,
}

impl Reported {
    fn take(&mut self, batch: Vec<Attempt>, verdicts: Vec<Verdict>) {
        let is_held = |a: &Attempt| {
            verdicts
                .iter()
                .any(|v| v.held && v.endpoint_id == a.endpoint_id)
        };
        let (held, stored): (Vec<_>, Vec<_>) = batch.into_iter().partition(is_held);
        self.stuck.extend(held);
        self.stored.extend(stored);
        self.verdicts.extend(verdicts);
    }
}

impl Engine {
    pub(super) fn push_outcome(&mut self, attempt: Attempt, urgent: bool) {
        // A pause is worth more the sooner it is known; seq keeps the order within an endpoint.
        if urgent && self.outcomes.len() > BATCH {
            self.outcomes.push_front(attempt);
        } else {
            self.outcomes.push_back(attempt);
        }
    }

    pub(super) fn report(&mut self, now: Instant) {
        if now >= self.stuck_at && self.reporting.is_empty() {
            for attempt in self.stuck.drain(..) {
                if let Some(owned) = self.endpoints.get_mut(&attempt.endpoint_id) {
                    owned.stuck = owned.stuck.saturating_sub(1);
                }
                self.outcomes.push_back(attempt);
            }
        }
        while let Some(part) = self.next_part(now) {
            let mut batch = Vec::new();
            let mut rest = VecDeque::new();
            for attempt in self.outcomes.drain(..) {
                if batch.len() < BATCH && part.has(&attempt) {
                    batch.push(attempt);
                } else {
                    rest.push_back(attempt);
                }
            }
            self.outcomes = rest;
            self.reporting.push(part);
            let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
            tokio::spawn(async move {
                events.send(Event::Reported(store(&db, worker, part, batch).await))
            });
        }
    }

    /// What the next report is of, if one can begin now.
    fn next_part(&self, now: Instant) -> Option<Part> {
        let first = self.outcomes.front()?;
        if now < self.report_at {
            return None;
        }
        match *self.reporting.as_slice() {
            [] if self.outcomes.len() <= BATCH || self.report_failures > 0 => Some(Part::All),
            [] => Some(Part::Half {
                odd: first.endpoint_id % 2 != 0,
            }),
            [Part::Half { odd }] if self.report_failures == 0 => {
                let other = Part::Half { odd: !odd };
                let waiting = self.outcomes.iter().filter(|a| other.has(a));
                (waiting.take(WORTH_A_SECOND).count() == WORTH_A_SECOND).then_some(other)
            }
            _ => None,
        }
    }

    pub(super) fn take_reported(&mut self, reported: Reported, now: Instant) {
        self.reporting.retain(|part| *part != reported.part);
        let result = reported.error.map_or(Ok(()), Err);
        self.note_call("report", &result, Some(reported.took));
        for attempt in &reported.stored {
            if let Some(owned) = self.endpoints.get_mut(&attempt.endpoint_id) {
                owned.stored(attempt.event_id, !attempt.is_delivered());
            }
        }
        for attempt in reported.unstored.into_iter().rev() {
            self.outcomes.push_front(attempt);
        }
        if reported.stuck.is_empty() {
            self.stuck_delay = RETRY_STUCK.0;
        } else {
            self.stuck_at = now + self.stuck_delay;
            self.stuck_delay = (self.stuck_delay * 2).min(RETRY_STUCK.1);
        }
        for attempt in reported.stuck {
            if let Some(owned) = self.endpoints.get_mut(&attempt.endpoint_id) {
                owned.stuck += 1;
            }
            self.stuck.push(attempt);
        }
        if result.is_ok() {
            self.telemetry.health.reported_ok();
            // A report of the other half says nothing of one that failed beside it.
            if reported.part == Part::All {
                self.report_failures = 0;
            }
        } else {
            self.telemetry.health.report_failed();
            let delay = Duration::from_millis(50 << self.report_failures.min(6));
            self.report_at = now + delay.mul_f64(rand::random_range(0.5..1.5));
            self.report_failures += 1;
        }
        self.apply_verdicts(&reported.verdicts, now);
        let touched: BTreeSet<i64> = reported.stored.iter().map(|a| a.endpoint_id).collect();
        for endpoint_id in touched {
            self.touch(endpoint_id, now);
        }
    }
}

/// Reports a batch. One that the database refuses is halved until the bad row stands alone; that one is
/// reported without its texts, which ends its delivery, and when that is refused too it is stuck.
pub(super) async fn store(db: &Db, worker: Uuid, part: Part, batch: Vec<Attempt>) -> Reported {
    let began = Instant::now();
    let mut reported = Reported {
        part,
        verdicts: Vec::new(),
        stored: Vec::new(),
        unstored: Vec::new(),
        stuck: Vec::new(),
        error: None,
        took: Duration::ZERO,
    };
    let mut todo = vec![batch];
    while let Some(mut batch) = todo.pop() {
        let refused = match db.report(worker, &batch).await {
            Ok(verdicts) => {
                reported.take(batch, verdicts);
                continue;
            }
            Err(error) if error.is_refusal() => error,
            Err(error) => {
                reported.unstored = batch;
                reported.unstored.extend(todo.drain(..).rev().flatten());
                reported.error = Some(error);
                break;
            }
        };
        if batch.len() > 1 {
            let second = batch.split_off(batch.len() / 2);
            todo.extend([second, batch]);
            continue;
        }
        for attempt in batch {
            tracing::error!(event_id = %attempt.event_id, endpoint_id = attempt.endpoint_id, error = %refused,
                            "an outcome could not be stored");
            match db.report(worker, &[bare(&attempt)]).await {
                Ok(verdicts) => reported.take(vec![attempt], verdicts),
                Err(_) => reported.stuck.push(attempt),
            }
        }
    }
    reported.took = began.elapsed();
    reported
}

/// The least that can be said of an attempt. A known 2xx stays one: what cannot be stored is its text.
fn bare(attempt: &Attempt) -> Attempt {
    Attempt {
        error_code: Some(UNREPORTABLE),
        error: None,
        answer: None,
        wait: None,
        http_status: attempt.http_status.filter(|_| attempt.is_delivered()),
        ..attempt.clone()
    }
}
