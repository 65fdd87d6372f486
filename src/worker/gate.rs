//! Whether a request of an endpoint may leave: pace, pauses, and whether it is stopped.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::pace::Pace;

/// What decides whether a request may leave now; shared with the endpoint's open requests, which test it
/// again as their last act before the first byte.
#[derive(Debug)]
pub(super) struct Gate(Mutex<GateState>);

#[derive(Debug)]
struct GateState {
    pace: Pace,
    /// By an answer of this worker's; ends by itself only.
    asked_until: Option<Instant>,
    /// By the database, as last heard.
    told_until: Option<Instant>,
    stopped: bool,
}

impl Gate {
    /// Open; the pace is not known yet.
    pub(super) fn new(now: Instant) -> Self {
        Self(Mutex::new(GateState {
            pace: Pace::new(1.0, 1, Duration::ZERO, now),
            asked_until: None,
            told_until: None,
            stopped: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the longest pause ends, if one holds at `now`.
    pub(super) fn paused_until(&self, now: Instant) -> Option<Instant> {
        let state = self.lock();
        state
            .asked_until
            .max(state.told_until)
            .filter(|until| *until > now)
    }

    /// When the last pause ends or ended.
    pub(super) fn pause_end(&self) -> Option<Instant> {
        let state = self.lock();
        state.asked_until.max(state.told_until)
    }

    /// Whether a request may still leave: neither paused nor stopped.
    pub(super) fn open(&self) -> bool {
        let now = Instant::now();
        !self.lock().stopped && self.paused_until(now).is_none()
    }

    pub(super) fn stopped(&self) -> bool {
        self.lock().stopped
    }

    /// The endpoint asked for a pause until then. Never shortened.
    pub(super) fn ask(&self, until: Instant) {
        let mut state = self.lock();
        state.asked_until = state.asked_until.max(Some(until));
    }

    /// What the database says, in place of what it said before.
    pub(super) fn tell(&self, until: Option<Instant>, stopped: bool) {
        let mut state = self.lock();
        state.told_until = until;
        state.stopped = stopped;
    }

    /// Until when the database said it is paused.
    pub(super) fn told_until(&self) -> Option<Instant> {
        self.lock().told_until
    }

    /// New settings of the pace; with `ahead`, the first, which say where it stands.
    pub(super) fn set_pace(&self, rate: f64, burst: u32, ahead: Option<Duration>, now: Instant) {
        let mut state = self.lock();
        match ahead {
            Some(ahead) => state.pace = Pace::new(rate, burst, ahead, now),
            None => state.pace.set(rate, burst, now),
        }
    }

    /// Takes a token of the pace, or says when there will be one.
    pub(super) fn take_token(&self, now: Instant) -> Result<(), Instant> {
        self.lock().pace.take(now)
    }

    pub(super) fn next_token(&self, now: Instant) -> Instant {
        self.lock().pace.next(now)
    }

    /// How far ahead of now the pace stands, for the next owner.
    pub(super) fn pace_ahead(&self, now: Instant) -> Duration {
        self.lock().pace.ahead(now)
    }
}
