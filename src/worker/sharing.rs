//! Giving endpoints up: idle ones, paused ones, and a fair share to other workers.

use std::time::{Duration, Instant};

use super::engine::{Engine, Event};
use crate::db::DbError;

/// A worker that cannot start a request for so long lets others try.
const STARVED: Duration = Duration::from_millis(100);
/// After giving something away, time for others to take it.
const HOLD_OFF: Duration = Duration::from_secs(1);

impl Engine {
    /// Gives up what there is nothing to do for; everything, when stopping.
    pub(super) fn tidy(&mut self, now: Instant) {
        let idle: Vec<i64> = self
            .endpoints
            .iter()
            .filter(|(_, o)| o.is_idle(now) || (self.stopping && o.may_leave()))
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.give_up(id, now);
        }
        if self
            .starved_since
            .is_some_and(|since| now >= since + STARVED)
            && self.lease.live_workers() > 1
        {
            self.starved_since = None;
            let waiting = self.ready[0].len().div_ceil(2);
            self.shed(waiting, now);
        }
        self.telemetry
            .metrics
            .owned_endpoints(i64::try_from(self.endpoints.len()).unwrap_or(i64::MAX));
    }

    /// At each beat: whoever owns more than its share gives the rest away.
    pub(super) fn share(&mut self, now: Instant) {
        let workers = self.lease.live_workers();
        if workers < 2 || self.stopping {
            return;
        }
        let all = self.lease.owned_in_all().max(self.endpoints.len());
        let share = (all * 6).div_ceil(workers * 5);
        if self.endpoints.len() > share {
            self.shed(self.endpoints.len() - share, now);
        }
    }

    /// Gives up to `count` endpoints away: those with nothing in hand at once; others stop starting requests
    /// and go once their flights have landed and are reported.
    fn shed(&mut self, count: usize, now: Instant) {
        let mut candidates: Vec<(bool, i64)> = self
            .endpoints
            .iter()
            .filter(|(_, o)| !o.leaving)
            .map(|(id, o)| (!o.in_hand.is_empty(), *id))
            .collect();
        candidates.sort_unstable();
        for (_, id) in candidates.into_iter().take(count) {
            if let Some(owned) = self.endpoints.get_mut(&id) {
                owned.leaving = true;
                owned.queue.clear();
                if owned.may_leave() {
                    self.give_up(id, now);
                }
            }
            self.claim_not_before = now + HOLD_OFF;
        }
    }

    pub(super) fn give_up(&mut self, id: i64, now: Instant) {
        if let Some(owned) = self.forget(id) {
            self.releasing.push((id, owned.gate.pace_ahead(now)));
        }
    }

    pub(super) fn release(&mut self) {
        if self.release_busy
            || self.releasing.is_empty()
            // A claim under way may bring back what is to be released again.
            || (self.release_unsure && self.claiming)
        {
            return;
        }
        let mut batch = std::mem::take(&mut self.releasing);
        if self.release_unsure {
            // What was released in truth, and claimed anew since, is ours again.
            batch.retain(|(id, _)| !self.endpoints.contains_key(id));
        }
        self.release_busy = true;
        self.in_release = batch.iter().map(|(id, _)| *id).collect();
        let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
        tokio::spawn(async move {
            let result = db.release(worker, &batch).await;
            if !matches!(&result, Ok(held) if held.is_empty()) {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            events.send(Event::Released(batch, result))
        });
    }

    pub(super) fn take_released(
        &mut self,
        batch: Vec<(i64, Duration)>,
        result: Result<Vec<i64>, DbError>,
    ) {
        self.release_busy = false;
        self.in_release.clear();
        self.release_unsure = result.is_err();
        self.note_call("release", &result, None);
        match result {
            Ok(held) => {
                // What was given up may be due again, for us as well as for others.
                self.claim_wanted = true;
                let again = batch.into_iter().filter(|(id, _)| held.contains(id));
                self.releasing.extend(again);
            }
            Err(_) => self.releasing.extend(batch),
        }
    }
}
