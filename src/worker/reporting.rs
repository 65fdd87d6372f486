//! Reporting: outcomes are held until they are stored, in order, one batch at a time.
//!
//! A batch is whatever came while the last one was under way, so an idle worker reports at once and a busy one
//! in bulk. A report that failed is repeated until it succeeds, and nothing is sent meanwhile: what the
//! database does not know, a later owner would send again.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::engine::{Engine, Event};
use crate::db::{Attempt, Db, DbError, Verdict};

/// Most attempts in one report.
const BATCH: usize = 500;

/// What became of a batch.
pub(super) struct Reported {
    pub(super) verdicts: Vec<Verdict>,
    pub(super) stored: Vec<(i64, Uuid)>,
    pub(super) unstored: Vec<Attempt>,
    pub(super) error: Option<DbError>,
    pub(super) took: Duration,
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
        if self.reporting || self.outcomes.is_empty() || now < self.report_at {
            return;
        }
        self.reporting = true;
        let batch: Vec<Attempt> = self
            .outcomes
            .drain(..self.outcomes.len().min(BATCH))
            .collect();
        let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
        tokio::spawn(async move { events.send(Event::Reported(store(&db, worker, batch).await)) });
    }

    pub(super) fn take_reported(&mut self, reported: Reported, now: Instant) {
        self.reporting = false;
        let result = reported.error.map_or(Ok(()), Err);
        self.note_call("report", &result, Some(reported.took));
        for (endpoint_id, event_id) in reported.stored {
            if let Some(owned) = self.endpoints.get_mut(&endpoint_id) {
                owned.stored(event_id);
            }
        }
        for attempt in reported.unstored.into_iter().rev() {
            self.outcomes.push_front(attempt);
        }
        if result.is_ok() {
            self.telemetry.health.reported_ok();
            self.report_failures = 0;
        } else {
            self.telemetry.health.report_failed();
            let delay = Duration::from_millis(50 << self.report_failures.min(6));
            self.report_at = now + delay.mul_f64(rand::random_range(0.5..1.5));
            self.report_failures += 1;
        }
        self.apply_verdicts(&reported.verdicts, now);
        if self.report_failures == 0 {
            self.start_ready(now);
        }
    }
}

/// Reports a batch. One that the database refuses is halved until the bad row stands alone; that one is
/// reported again without its texts, as an outcome that could not be stored.
pub(super) async fn store(db: &Db, worker: Uuid, batch: Vec<Attempt>) -> Reported {
    let began = Instant::now();
    let mut reported = Reported {
        verdicts: Vec::new(),
        stored: Vec::new(),
        unstored: Vec::new(),
        error: None,
        took: Duration::ZERO,
    };
    let mut todo = vec![batch];
    while let Some(batch) = todo.pop() {
        match db.report(worker, &batch).await {
            Ok(verdicts) => {
                reported.verdicts.extend(verdicts);
                reported
                    .stored
                    .extend(batch.iter().map(|a| (a.endpoint_id, a.event_id)));
            }
            Err(error) if error.is_refusal() => match halve(batch) {
                Halved::Halves(first, second) => todo.extend([second, first]),
                Halved::Bare(bare) => {
                    tracing::error!(event_id = %bare.event_id, endpoint_id = bare.endpoint_id, %error,
                                    "an outcome could not be stored; ending its delivery");
                    todo.push(vec![*bare]);
                }
                Halved::Hopeless(attempt) => {
                    // Held in hand for as long as the endpoint is owned: at least it is not sent again.
                    tracing::error!(event_id = %attempt.event_id, endpoint_id = attempt.endpoint_id, %error,
                                    "a delivery could not even be ended");
                }
            },
            Err(error) => {
                reported.unstored = batch;
                reported.unstored.extend(todo.drain(..).rev().flatten());
                reported.error = Some(error);
            }
        }
    }
    reported.took = began.elapsed();
    reported
}

enum Halved {
    Halves(Vec<Attempt>, Vec<Attempt>),
    Bare(Box<Attempt>),
    Hopeless(Box<Attempt>),
}

fn halve(mut batch: Vec<Attempt>) -> Halved {
    const UNREPORTABLE: &str = "unreportable";
    if batch.len() > 1 {
        let second = batch.split_off(batch.len() / 2);
        return Halved::Halves(batch, second);
    }
    match batch.pop() {
        Some(attempt) if attempt.error_code == Some(UNREPORTABLE) => {
            Halved::Hopeless(Box::new(attempt))
        }
        Some(attempt) => Halved::Bare(Box::new(Attempt {
            // A known 2xx stays one: what cannot be stored is its text.
            error_code: Some(UNREPORTABLE),
            error: None,
            answer: None,
            wait: None,
            http_status: attempt.http_status.filter(|s| (200..300).contains(s)),
            ..attempt
        })),
        None => Halved::Halves(Vec::new(), Vec::new()),
    }
}
