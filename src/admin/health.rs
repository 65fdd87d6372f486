//! Whether a worker works.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// What a worker last managed to do.
#[derive(Debug, Default)]
pub struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    turned: Option<Instant>,
    claims: bool,
    /// No report is failing.
    reports_fail: bool,
    listens: bool,
}

impl Health {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop has turned.
    pub fn turned(&self) {
        self.lock().turned = Some(Instant::now());
    }

    /// A claim succeeded.
    pub fn claimed_ok(&self) {
        self.lock().claims = true;
    }

    /// A claim failed, or registering did.
    pub fn claim_failed(&self) {
        self.lock().claims = false;
    }

    /// A report succeeded.
    pub fn reported_ok(&self) {
        self.lock().reports_fail = false;
    }

    /// A report failed.
    pub fn report_failed(&self) {
        self.lock().reports_fail = true;
    }

    /// LISTEN is in force, or not.
    pub fn listening(&self, listening: bool) {
        self.lock().listens = listening;
    }

    /// Whether it can claim, report and listen; if not, what it cannot.
    pub fn ready(&self) -> Result<(), &'static str> {
        let state = self.lock();
        if !state.claims {
            Err("cannot claim endpoints from the database")
        } else if state.reports_fail {
            Err("cannot report outcomes to the database")
        } else if !state.listens {
            Err("cannot listen for notifications; polling")
        } else {
            Ok(())
        }
    }

    /// Whether the main loop has turned within a lease; if not, for how long it has not.
    pub fn live(&self, lease: Duration, now: Instant) -> Result<(), Duration> {
        match self
            .lock()
            .turned
            .map(|at| now.saturating_duration_since(at))
        {
            Some(silent) if silent > lease => Err(silent),
            // Before the first turn it is starting.
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_while_it_can_claim_report_and_listen() {
        let health = Health::default();
        assert!(health.ready().is_err());
        health.claimed_ok();
        assert!(health.ready().is_err());
        health.listening(true);
        assert_eq!(health.ready(), Ok(()));
        health.report_failed();
        assert!(health.ready().unwrap_err().contains("report"));
        health.reported_ok();
        health.claim_failed();
        assert!(health.ready().unwrap_err().contains("claim"));
    }

    #[test]
    fn live_while_the_loop_turns() {
        let health = Health::default();
        let lease = Duration::from_secs(30);
        health.turned();
        let now = Instant::now();
        assert_eq!(health.live(lease, now), Ok(()));
        assert!(health.live(lease, now + lease * 2).is_err());
    }
}
