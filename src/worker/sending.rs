//! From a queue to a request, and from an answer to an outcome.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    endpoint::{LastAnswer, Start},
    engine::{AbortOnDrop, Engine, Event, Flight},
    gate::Gate,
    lease::Lease,
    target::Target,
};
use crate::{
    db::{Attempt, Delivery, Settings},
    delivery::{self, Answer, ErrorCode, NotSent, Request},
};

/// An answer that took longer makes its endpoint a slow one.
const SLOW: Duration = Duration::from_secs(1);

impl Engine {
    /// Gives free slots to ready endpoints, one per endpoint and turn. Slow endpoints get at most half of
    /// the slots.
    pub(super) fn start_ready(&mut self, now: Instant) {
        if self.stopping || self.report_failures > 0 {
            return;
        }
        let slots = self.options.max_in_flight;
        for slow in [0, 1] {
            while let Some(id) = self.ready[slow].front().copied() {
                if self.flights.len() >= slots
                    || (slow == 1 && self.slow_flights >= slots.div_ceil(2))
                {
                    break;
                }
                self.ready[slow].pop_front();
                if let Some(owned) = self.endpoints.get_mut(&id) {
                    owned.queued = false;
                    if owned.may_start(now) == Start::Now {
                        self.start(id, now);
                    }
                }
                self.touch(id, now);
            }
        }
        self.starved_since = match (
            self.flights.len() >= slots && !self.ready[0].is_empty(),
            self.starved_since,
        ) {
            (false, _) => None,
            (true, since) => since.or(Some(now)),
        };
        self.telemetry
            .metrics
            .in_flight(i64::try_from(self.flights.len()).unwrap_or(i64::MAX));
    }

    fn start(&mut self, id: i64, now: Instant) {
        let Some(owned) = self.endpoints.get_mut(&id) else {
            return;
        };
        let (Some(target), Some(delivery)) = (owned.target.clone(), owned.queue.pop_front()) else {
            return;
        };
        if now.duration_since(delivery.fetched_at) >= delivery.expires_in {
            // Past its time to live: the next fetch meets it and the database ends it.
            owned.poke(now);
            return;
        }
        if let Err(_later) = owned.gate.take_token(now) {
            owned.queue.push_front(delivery);
            return;
        }
        let slow = owned.last_answer != LastAnswer::Quick
            || owned
                .oldest_start()
                .is_some_and(|at| now.duration_since(at) > SLOW);
        self.seq += 1;
        let seq = self.seq;
        owned.note_start(seq, now);
        owned.in_hand.insert(delivery.event_id);
        let (event_id, run, number) = (delivery.event_id, delivery.run, delivery.number);
        let waited = delivery.overdue + now.duration_since(delivery.fetched_at);
        let task = attempt(
            self.sender.clone(),
            target,
            delivery,
            owned.gate.clone(),
            self.lease.clone(),
        );
        let events = self.events.clone();
        let task =
            tokio::spawn(
                async move { events.send(Event::Answered(seq, task.await.map(Box::new))) },
            )
            .abort_handle();
        self.slow_flights += usize::from(slow);
        self.flights.insert(
            seq,
            Flight {
                endpoint_id: id,
                event_id,
                run,
                number,
                waited,
                slow,
                _task: AbortOnDrop(task),
            },
        );
    }

    pub(super) fn take_answer(
        &mut self,
        seq: i64,
        answer: Result<Box<Answer>, NotSent>,
        now: Instant,
    ) {
        let Some(flight) = self.flights.remove(&seq) else {
            return;
        };
        self.slow_flights -= usize::from(flight.slow);
        let id = flight.endpoint_id;
        if let Some(owned) = self.endpoints.get_mut(&id) {
            owned.note_end(seq, now);
            match &answer {
                // It did not leave: nothing to report, and no longer in hand.
                Err(reason) => {
                    if *reason == NotSent::NoLookup {
                        tracing::debug!(endpoint = id, "other lookups take all threads");
                        owned.last_answer = LastAnswer::None;
                    }
                    owned.stored(flight.event_id, false);
                    owned.poke(now);
                }
                Ok(answer) => {
                    owned.last_answer = last_answer(answer);
                    let failed = !matches!(answer.http_status, Some(200..=299));
                    owned.revisit |= failed;
                    owned.unstored_failures += usize::from(failed);
                    if let Some(until) = owned.settings().and_then(|s| pause(s, answer)) {
                        owned.gate.ask(until);
                    }
                }
            }
        }
        if let Ok(answer) = answer {
            let outcome = outcome_label(&answer);
            self.telemetry
                .metrics
                .attempt(outcome, answer.duration, flight.waited);
            let urgent = outcome == "rate_limited";
            self.push_outcome(
                Attempt {
                    seq,
                    event_id: flight.event_id,
                    endpoint_id: id,
                    run: flight.run,
                    number: flight.number,
                    ended: answer.started + answer.duration,
                    duration: answer.duration,
                    http_status: answer.http_status,
                    error_code: answer
                        .error
                        .as_ref()
                        .filter(|_| answer.http_status.is_none())
                        .map(|e| e.0.as_str()),
                    error: answer.error.map(|e| e.1),
                    wait: answer.wait,
                    answer: answer.excerpt,
                },
                urgent,
            );
        }
        self.touch(id, now);
    }

    /// Ends a delivery that cannot be sent at all, visibly and alone.
    pub(super) fn refuse(&mut self, id: i64, delivery: &Delivery, reason: String, now: Instant) {
        if let Some(owned) = self.endpoints.get_mut(&id) {
            if !owned.in_hand.insert(delivery.event_id) {
                return;
            }
            owned.unstored_failures += 1;
            owned.revisit = true;
        }
        self.seq += 1;
        let attempt = Attempt {
            seq: self.seq,
            event_id: delivery.event_id,
            endpoint_id: id,
            run: delivery.run,
            number: delivery.number,
            ended: now,
            duration: Duration::ZERO,
            http_status: None,
            error_code: Some(ErrorCode::BadRequest.as_str()),
            error: Some(reason),
            wait: None,
            answer: None,
        };
        self.push_outcome(attempt, false);
    }
}

/// One attempt.
async fn attempt(
    sender: delivery::Sender,
    target: Arc<Target>,
    delivery: Delivery,
    gate: Arc<Gate>,
    lease: Arc<Lease>,
) -> Result<Answer, NotSent> {
    let timestamp = lease.database_us().div_euclid(1_000_000);
    let id = delivery.event_id.to_string();
    let signature = delivery::signature(
        target.style,
        &target.secrets,
        &id,
        timestamp,
        &delivery.body,
    );
    let request = Request {
        uri: target.uri.clone(),
        event_id: delivery.event_id,
        event_type: delivery.event_type,
        number: delivery.number,
        timestamp,
        headers: target.headers.clone(),
        signature,
        body: delivery.body,
        connect_timeout: target.connect_timeout,
        request_timeout: target.request_timeout,
    };
    let may_leave = {
        let (gate, lease) = (gate.clone(), lease.clone());
        move || lease.holds() && gate.open()
    };
    let may_repeat = {
        let lease = lease.clone();
        async move || loop {
            if !lease.holds() || !gate.open() {
                return false;
            }
            match gate.take_token(Instant::now()) {
                Ok(()) => return true,
                Err(at) => tokio::time::sleep_until(at.into()).await,
            }
        }
    };
    let clock = move || lease.database_us();
    sender.send(request, clock, may_leave, may_repeat).await
}

fn last_answer(answer: &Answer) -> LastAnswer {
    match (answer.http_status, &answer.error) {
        (Some(_), _) if answer.duration > SLOW => LastAnswer::Slow,
        (Some(_), _) => LastAnswer::Quick,
        // Nothing was asked of the endpoint.
        (None, Some((code, _))) if code.is_final() => LastAnswer::Quick,
        (None, _) => LastAnswer::None,
    }
}

/// Until when an answer stops its endpoint; the database computes the same from the report.
fn pause(settings: &Settings, answer: &Answer) -> Option<Instant> {
    let wait = match (answer.http_status, answer.wait) {
        (Some(429), wait) => wait.unwrap_or(Duration::from_millis(settings.pause_default_ms)),
        (Some(503), Some(wait)) if settings.pause_on_503 => wait,
        _ => return None,
    };
    let least = Duration::from_millis(settings.pause_min_ms);
    let most = Duration::from_millis(settings.pause_max_ms).max(least);
    Some(answer.started + answer.duration + wait.clamp(least, most))
}

fn outcome_label(answer: &Answer) -> &'static str {
    match answer.http_status {
        Some(200..=299) => "delivered",
        Some(429) => "rate_limited",
        Some(_) => "failed",
        None => "no_answer",
    }
}
