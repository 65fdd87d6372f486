//! What comes back to the loop, and where it goes.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::{
    endpoint::{LastAnswer, Owned, Start},
    engine::{Engine, Event},
};
use crate::db::Verdict;

/// Least time between two rounds of asking for all endpoints, for each of them.
const REFRESH_APART: Duration = Duration::from_micros(100);

/// Most hints are an emit's, and fan_out says whether it made something to claim: a claim beside it finds nothing and
/// takes time from it. The others can wait so long.
const CLAIM_AFTER_HINT: Duration = Duration::from_millis(5);

impl Engine {
    pub(super) fn take(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Hint(payload) => self.take_hint(&payload, now),
            Event::Listening(listening) => {
                self.telemetry.health.listening(listening);
                if listening {
                    self.fan_out_wanted = true;
                    self.claim_wanted = true;
                    self.refresh_all(now);
                }
            }
            Event::Answered(seq, answer) => self.take_answer(seq, answer, now),
            Event::FannedOut {
                idle,
                asked_at,
                result,
                fetched,
            } => self.take_fan_out(idle, asked_at, result, fetched, now),
            Event::Claimed(result, took) => self.take_claim(result, took, now),
            Event::Fetched {
                wanted,
                asked_at,
                result,
            } => self.take_fetched(wanted, asked_at, result, now),
            Event::Reported(reported) => self.take_reported(reported, now),
            Event::Released(endpoints, result) => self.take_released(endpoints, result),
            Event::Maintained(result) => {
                self.maintaining = false;
                if let Ok(true) = result {
                    self.maintain_at = now + Duration::from_secs(1);
                }
                self.note_call("maintain", &result, None);
            }
        }
    }

    fn take_hint(&mut self, payload: &str, now: Instant) {
        if payload.is_empty() {
            self.fan_out_wanted = true;
            self.look.soon(now);
            self.claim_by(now + CLAIM_AFTER_HINT);
        } else if payload
            .parse::<Uuid>()
            .is_ok_and(|id| id == self.lease.worker)
        {
            // Whoever changed one of ours may have held it while an event was fanned out. Mostly it is what was fanned
            // out, though, and fetching that comes first.
            self.look.soon(now);
            // It does not say which endpoint: all are asked for, and the more there are, the less often.
            let owned = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
            let apart = (REFRESH_APART * owned).min(REFRESH_APART * 1000);
            self.refresh_at = Some(now.max(self.refreshed_at + apart));
        }
    }

    pub(super) fn refresh_all(&mut self, now: Instant) {
        self.refresh_at = None;
        self.refreshed_at = now;
        let ids: Vec<i64> = self.endpoints.keys().copied().collect();
        for id in ids {
            if let Some(owned) = self.endpoints.get_mut(&id) {
                owned.poke(now);
            }
            self.touch(id, now);
        }
    }

    /// Puts an endpoint where it belongs now: to be fetched for, ready for a slot, and on the timer.
    pub(super) fn touch(&mut self, id: i64, now: Instant) {
        let Some(owned) = self.endpoints.get_mut(&id) else {
            return;
        };
        if !owned.wanted && owned.wants_fetch(now).is_some() {
            owned.wanted = true;
            self.wanted.push(id);
        }
        if !owned.queued && owned.may_start(now) == Start::Now {
            owned.queued = true;
            let slow = usize::from(owned.last_answer != LastAnswer::Quick);
            self.ready[slow].push_back(id);
        }
        // A timer that is early costs a look; moving it at each touch costs more.
        let next = owned.next_turn(now);
        if owned.timer.is_none_or(|old| next < old) {
            if let Some(old) = owned.timer.replace(next) {
                self.timers.remove(&(old, id));
            }
            self.timers.insert((next, id));
        }
    }

    /// Forgets an endpoint that is given up or lost.
    pub(super) fn forget(&mut self, id: i64) -> Option<Owned> {
        let owned = self.endpoints.remove(&id)?;
        if let Some(at) = owned.timer {
            self.timers.remove(&(at, id));
        }
        self.ready.iter_mut().for_each(|q| q.retain(|e| *e != id));
        Some(owned)
    }

    pub(super) fn apply_verdicts(&mut self, verdicts: &[Verdict], now: Instant) {
        for verdict in verdicts {
            if verdict.held {
                continue;
            }
            if verdict.history_lost {
                self.telemetry.metrics.history_lost();
            }
            if let Some(owned) = self.endpoints.get_mut(&verdict.endpoint_id) {
                if verdict.owned {
                    owned.take_verdict(verdict, now);
                } else {
                    self.forget(verdict.endpoint_id);
                }
            }
            self.touch(verdict.endpoint_id, now);
        }
    }
}
