//! The loop: one task holds all state of a lease and decides; everything that waits (database calls, requests,
//! the listener) runs beside it and comes back as an [`Event`]. The loop itself never waits for the database,
//! so a slow call holds up no request and a slow receiver no call.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender},
        watch,
    },
    task::AbortHandle,
};
use uuid::Uuid;

use super::{
    Options,
    endpoint::Owned,
    lease::Lease,
    reporting::{Part, Reported},
    wake::LookAgain,
};
use crate::{
    admin::Telemetry,
    db::{Attempt, Claim, Db, DbError, FanOut, Fetched, WantedRefill},
    delivery::{Answer, NotSent, Sender},
};

/// How often `maintain` is called; the database lets one worker at a time do it.
const MAINTAIN_EVERY: Duration = Duration::from_secs(60);

/// What comes back to the loop.
pub(super) enum Event {
    /// A notification, with its payload.
    Hint(String),
    /// LISTEN is in force, or was lost.
    Listening(bool),
    /// A request ended. `None`: it did not leave, since the gate closed meanwhile.
    Answered(i64, Result<Box<Answer>, NotSent>),
    /// `fan_out` returned.
    FannedOut {
        idle: Vec<WantedRefill>,
        asked_at: Instant,
        result: Result<FanOut, DbError>,
        fetched: Result<Vec<Fetched>, DbError>,
    },
    /// `claim_endpoints` returned.
    Claimed(Result<Claim, DbError>, Duration),
    /// `fetch_deliveries` returned.
    Fetched {
        wanted: Vec<(WantedRefill, bool)>,
        asked_at: Instant,
        result: Result<Vec<Fetched>, DbError>,
    },
    /// `report_attempts` returned; attempts that are not stored come back.
    Reported(Reported),
    /// `release_endpoints` returned.
    Released(Vec<(i64, Duration)>, Result<Vec<i64>, DbError>),
    /// `maintain` returned.
    Maintained(Result<bool, DbError>),
}

/// A request under way.
pub(super) struct Flight {
    pub(super) endpoint_id: i64,
    pub(super) event_id: Uuid,
    pub(super) run: i32,
    pub(super) number: i32,
    /// How long it had been due when it was started.
    pub(super) waited: Duration,
    pub(super) slow: bool,
    pub(super) _task: AbortOnDrop,
}

/// Ends the task with itself: a request must not outlive whoever would report its outcome.
pub(super) struct AbortOnDrop(pub(super) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a lease ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Asked to stop: everything landed, is reported and released.
    Stopped,
    /// The lease was lost: requests were aborted; outcomes may be left to report.
    Lost,
}

/// The state of one lease.
pub(super) struct Engine {
    pub(super) db: Db,
    pub(super) lease: Arc<Lease>,
    pub(super) sender: Sender,
    pub(super) options: Options,
    pub(super) telemetry: Arc<Telemetry>,
    pub(super) events: UnboundedSender<Event>,
    pub(super) endpoints: HashMap<i64, Owned>,
    /// Endpoints whose next request needs a slot only: quick ones, and slow ones.
    pub(super) ready: [VecDeque<i64>; 2],
    pub(super) timers: BTreeSet<(Instant, i64)>,
    pub(super) flights: HashMap<i64, Flight>,
    pub(super) slow_flights: usize,
    pub(super) seq: i64,
    pub(super) outcomes: VecDeque<Attempt>,
    /// What the reports under way are of.
    pub(super) reporting: Vec<Part>,
    /// Outcomes that the database refuses.
    pub(super) stuck: Vec<Attempt>,
    pub(super) stuck_at: Instant,
    pub(super) stuck_delay: Duration,
    /// A report failed: nothing is sent until one succeeds.
    pub(super) report_failures: u32,
    pub(super) report_at: Instant,
    pub(super) wanted: Vec<i64>,
    pub(super) fetching: bool,
    pub(super) fetch_at: Instant,
    pub(super) look: LookAgain,
    pub(super) fanning_out: bool,
    pub(super) fan_out_wanted: bool,
    pub(super) claiming: bool,
    pub(super) claim_wanted: bool,
    pub(super) claim_at: Option<Instant>,
    pub(super) claim_not_before: Instant,
    pub(super) releasing: Vec<(i64, Duration)>,
    pub(super) release_busy: bool,
    /// In the release call under way.
    pub(super) in_release: Vec<i64>,
    /// A release failed and may have been carried out: no claim until its repetition has.
    pub(super) release_unsure: bool,
    /// The next claim asks what is owned already.
    pub(super) adopt: bool,
    pub(super) starved_since: Option<Instant>,
    pub(super) poll_at: Instant,
    pub(super) tidy_at: Instant,
    pub(super) maintaining: bool,
    pub(super) maintain_at: Instant,
    pub(super) stopping: bool,
    /// When to ask for all endpoints anew, and when that was last done.
    pub(super) refresh_at: Option<Instant>,
    pub(super) refreshed_at: Instant,
    stopping_since: Option<Instant>,
}

impl Engine {
    pub(super) fn new(
        db: Db,
        lease: Arc<Lease>,
        sender: Sender,
        options: Options,
        telemetry: Arc<Telemetry>,
        events: UnboundedSender<Event>,
    ) -> Self {
        let now = Instant::now();
        Self {
            db,
            lease,
            sender,
            telemetry,
            events,
            endpoints: HashMap::new(),
            ready: [VecDeque::new(), VecDeque::new()],
            timers: BTreeSet::new(),
            flights: HashMap::new(),
            slow_flights: 0,
            seq: 0,
            outcomes: VecDeque::new(),
            reporting: Vec::new(),
            stuck: Vec::new(),
            stuck_at: now,
            stuck_delay: Duration::from_millis(10),
            report_failures: 0,
            report_at: now,
            wanted: Vec::new(),
            fetching: false,
            fetch_at: now,
            look: LookAgain::new(options.poll_interval, now),
            fanning_out: false,
            fan_out_wanted: true,
            claiming: false,
            claim_wanted: true,
            claim_at: None,
            claim_not_before: now,
            releasing: Vec::new(),
            release_busy: false,
            in_release: Vec::new(),
            release_unsure: false,
            adopt: false,
            refresh_at: None,
            refreshed_at: now,
            starved_since: None,
            poll_at: now + options.poll_interval,
            tidy_at: now,
            maintaining: false,
            maintain_at: now,
            stopping: false,
            stopping_since: None,
            options,
        }
    }

    /// Works until the lease is lost or `stop` turns true and all is drained.
    pub(super) async fn run(
        &mut self,
        inbox: &mut UnboundedReceiver<Event>,
        stop: &mut watch::Receiver<bool>,
    ) -> End {
        let lease = self.lease.clone();
        loop {
            self.telemetry.health.turned();
            if !lease.holds() {
                // Answers that are here already are worth reporting, if only under the old id.
                while let Ok(event) = inbox.try_recv() {
                    self.take(event);
                }
                self.abort_flights();
                self.telemetry.metrics.lease_lost();
                return End::Lost;
            }
            self.stopping = self.stopping || *stop.borrow();
            let now = Instant::now();
            self.turn(now);
            if self.stopping {
                let since = *self.stopping_since.get_or_insert(now);
                let overdue = self.flights.is_empty() && now >= since + self.options.drain_limit;
                if self.is_drained() || overdue {
                    return End::Stopped;
                }
            }
            let wake = self.next_turn(now).min(now + lease.remaining());
            tokio::select! {
                biased;
                event = inbox.recv() => {
                    let Some(event) = event else { return End::Stopped };
                    self.take(event);
                    // All that has come meanwhile, before deciding anew.
                    while let Ok(event) = inbox.try_recv() {
                        self.take(event);
                    }
                }
                () = lease.changed() => self.share(Instant::now()),
                changed = stop.changed(), if !self.stopping => {
                    // The sender is gone: nobody can ask to stop more plainly.
                    self.stopping = self.stopping || changed.is_err();
                }
                () = tokio::time::sleep_until(wake.into()) => {}
            }
        }
    }

    /// Decides everything that can be decided now.
    fn turn(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, id));
            if let Some(owned) = self.endpoints.get_mut(&id) {
                owned.timer = None;
            }
            self.touch(id, now);
        }
        if now >= self.poll_at {
            self.poll_at = now + self.options.poll_interval;
            self.adopt = true;
            self.claim_wanted = true;
            self.refresh_all(now);
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.refresh_all(now);
        }
        if now >= self.tidy_at {
            self.tidy_at = now + Duration::from_millis(250);
            self.tidy(now);
        }
        self.start_ready(now);
        self.report(now);
        self.release();
        if self.stopping {
            return;
        }
        self.fetch(now);
        self.look(now);
        if now >= self.maintain_at && !self.maintaining {
            self.maintaining = true;
            self.maintain_at = now + MAINTAIN_EVERY.mul_f64(rand::random_range(0.8..1.2));
            let (db, events) = (self.db.clone(), self.events.clone());
            tokio::spawn(async move { events.send(Event::Maintained(db.maintain().await)) });
        }
    }

    fn next_turn(&self, now: Instant) -> Instant {
        let mut at = self.tidy_at.min(self.poll_at);
        if let Some(refresh_at) = self.refresh_at {
            at = at.min(refresh_at);
        }
        if let Some(&(timer, _)) = self.timers.first() {
            at = at.min(timer);
        }
        if !self.outcomes.is_empty() && self.reporting.is_empty() {
            at = at.min(self.report_at);
        }
        if !self.stuck.is_empty() && self.reporting.is_empty() {
            at = at.min(self.stuck_at);
        }
        if !self.stopping {
            at = at.min(self.maintain_at.max(now + Duration::from_millis(100)));
            if !self.fanning_out {
                at = at.min(self.look.at());
            }
            if !self.claiming
                && !self.release_unsure
                && self.flights.len() < self.options.max_in_flight
            {
                let due = if self.claim_wanted {
                    Some(now)
                } else {
                    self.claim_at
                };
                if let Some(due) = due {
                    at = at.min(due.max(self.claim_not_before));
                }
            }
            if !self.wanted.is_empty() && !self.fetching {
                at = at.min(self.fetch_at);
            }
        }
        at
    }

    pub(super) fn note_call<T>(
        &self,
        call: &'static str,
        result: &Result<T, DbError>,
        took: Option<Duration>,
    ) {
        self.telemetry
            .metrics
            .db_call(call, took.unwrap_or_default(), result.is_ok());
        if let Err(error) = result {
            tracing::warn!(call, %error, "a database call failed");
        }
    }

    fn is_drained(&self) -> bool {
        self.flights.is_empty()
            && self.outcomes.is_empty()
            && self.stuck.is_empty()
            && self.reporting.is_empty()
            && !self.release_busy
            && self.endpoints.is_empty()
            && self.releasing.is_empty()
    }

    fn abort_flights(&mut self) {
        self.flights.clear();
    }

    /// Outcomes that are not stored yet, for a report under the old id after the lease has ended. Reports
    /// under way are waited for: their calls are bounded in time.
    pub(super) async fn into_outcomes(
        mut self,
        inbox: &mut UnboundedReceiver<Event>,
    ) -> Vec<Attempt> {
        while !self.reporting.is_empty() {
            match inbox.recv().await {
                Some(event @ (Event::Reported(_) | Event::Answered(..))) => self.take(event),
                Some(_) => {}
                None => break,
            }
        }
        self.outcomes.into_iter().chain(self.stuck).collect()
    }
}
