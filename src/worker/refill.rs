//! Finding work: fan_out, claim, fetch.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    endpoint::Owned,
    engine::{Engine, Event},
};
use crate::db::{Claim, DbError, FanOut, Fetched, WantedRefill};

/// Most endpoints in one fetch.
const MOST_ENDPOINTS: usize = 200;
/// Most endpoints owned with which fan_out fetches for those that are idle.
const MOST_IDLE: usize = 100;
/// Most bytes of bodies that fan_out brings along; a larger body comes alone.
const MOST_BYTES_AT_ONCE: i64 = 256 << 10;
/// How long after a claim failed the next is tried.
const CLAIM_AGAIN: Duration = Duration::from_millis(200);
/// Most bytes of bodies that one fetch brings.
const MOST_BYTES: i64 = 8 << 20;
/// Bodies held, queued or not yet sent, beyond which only endpoints without a queue get more.
const MOST_HELD_BYTES: usize = 32 << 20;
/// Most bytes of bodies that one fetch brings then beside what it replaces; a larger body comes alone. Receivers that do not read hold
/// bodies for as long as their requests may take, which must not slow down everybody else.
const MOST_BYTES_WHEN_FULL: i64 = 256 << 10;

impl Engine {
    /// Looks for events to fan out and for endpoints to claim, when there is a sign of them or it is time.
    pub(super) fn look(&mut self, now: Instant) {
        if now >= self.look.at() && !self.fanning_out {
            self.fan_out_wanted = true;
            self.look.looked(now);
        }
        if self.fan_out_wanted && !self.fanning_out {
            self.fan_out_wanted = false;
            self.fanning_out = true;
            let idle = self.take_idle(now);
            let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
            tokio::spawn(async move {
                let (result, fetched) = db.fan_out(worker, &idle, MOST_BYTES_AT_ONCE).await;
                events.send(Event::FannedOut {
                    idle,
                    asked_at: now,
                    result,
                    fetched,
                })
            });
        }
        let due = self.claim_wanted || self.claim_at.is_some_and(|at| at <= now);
        let free = self
            .options
            .max_in_flight
            .saturating_sub(self.flights.len());
        if due && !self.claiming && !self.release_unsure && free > 0 && now >= self.claim_not_before
        {
            self.claim_wanted = false;
            // What is here when the answer comes was asked for since.
            self.claim_at = None;
            self.claiming = true;
            let include_owned = std::mem::take(&mut self.adopt);
            let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
            tokio::spawn(async move {
                let result = db.claim(worker, free, include_owned).await;
                events.send(Event::Claimed(result, now.elapsed()))
            });
        }
    }

    /// When nothing is under way, endpoints to fetch for in the call that makes their deliveries: with little to do, a
    /// second one is most of the time that a delivery takes.
    fn take_idle(&mut self, now: Instant) -> Vec<WantedRefill> {
        if !self.flights.is_empty() || self.fetching || self.endpoints.len() > MOST_IDLE {
            return Vec::new();
        }
        let idle = self.endpoints.iter_mut().filter_map(|(id, owned)| {
            let limit = i32::try_from(owned.room_if_idle(now)?).unwrap_or(i32::MAX);
            owned.fetching = true;
            Some(WantedRefill {
                endpoint_id: *id,
                limit,
            })
        });
        idle.collect()
    }

    pub(super) fn take_fan_out(
        &mut self,
        idle: Vec<WantedRefill>,
        asked_at: Instant,
        result: Result<FanOut, DbError>,
        fetched: Result<Vec<Fetched>, DbError>,
        now: Instant,
    ) {
        self.fanning_out = false;
        self.note_call("fan_out", &result, Some(asked_at.elapsed()));
        if !idle.is_empty() {
            self.note_call("fetch", &fetched, Some(asked_at.elapsed()));
        }
        let mut fan_out = result.unwrap_or_default();
        let mut by_id = by_id(fetched.unwrap_or_default());
        fan_out.due.retain(|id| !by_id.contains_key(id));
        for refill in idle {
            let id = refill.endpoint_id;
            if let Some(owned) = self.endpoints.get_mut(&id) {
                owned.fetching = false;
            }
            if let Some(fetched) = by_id.remove(&id) {
                self.refill(refill, false, fetched, asked_at, now);
            }
            self.touch(id, now);
        }
        if fan_out.events > 0 || fan_out.deliveries > 0 {
            self.telemetry
                .metrics
                .fan_out(fan_out.events, fan_out.deliveries);
            self.look.soon(now);
        }
        if fan_out.busy {
            self.look.again(now);
        }
        self.fan_out_wanted |= fan_out.more;
        self.claim_wanted |= fan_out.claimable;
        for id in fan_out.due {
            if let Some(owned) = self.endpoints.get_mut(&id) {
                owned.poke(now);
            }
            self.touch(id, now);
        }
    }

    /// Lets the next claim be no later than that.
    pub(super) fn claim_by(&mut self, at: Instant) {
        self.claim_at = Some(self.claim_at.map_or(at, |planned| planned.min(at)));
    }

    pub(super) fn take_claim(
        &mut self,
        result: Result<Claim, DbError>,
        took: Duration,
        now: Instant,
    ) {
        self.claiming = false;
        self.note_call("claim", &result, Some(took));
        let Ok(claim) = result else {
            // It may have been carried out all the same: the next one asks what is owned.
            self.adopt = true;
            self.claim_by(now + CLAIM_AGAIN);
            self.telemetry.health.claim_failed();
            return;
        };
        self.telemetry.health.claimed_ok();
        self.telemetry.metrics.claimed(claim.endpoints.len());
        if !claim.endpoints.is_empty() {
            self.look.soon(now);
        }
        // A due endpoint that could not be taken is locked by somebody: no hurry to try again.
        let least = Duration::from_millis(if claim.endpoints.is_empty() { 50 } else { 1 });
        if let Some(delay) = claim.next_in {
            self.claim_by(now + delay.max(least));
        }
        for claimed in claim.endpoints {
            let id = claimed.endpoint_id;
            // Known already, or being given up: only what an unheard answer brought is new here.
            if self.endpoints.contains_key(&id)
                || self.in_release.contains(&id)
                || self.releasing.iter().any(|(r, _)| *r == id)
            {
                continue;
            }
            self.endpoints
                .insert(claimed.endpoint_id, Owned::new(claimed.pace_ahead, now));
            self.touch(claimed.endpoint_id, now);
        }
        self.telemetry
            .metrics
            .owned_endpoints(i64::try_from(self.endpoints.len()).unwrap_or(i64::MAX));
    }

    pub(super) fn fetch(&mut self, now: Instant) {
        if self.fetching || self.wanted.is_empty() || now < self.fetch_at {
            return;
        }
        let full = self.db.held_bytes() >= MOST_HELD_BYTES;
        let mut replaced = 0;
        let mut wanted = Vec::new();
        let mut skip: Vec<(Uuid, i64)> = Vec::new();
        for id in self.wanted.drain(..self.wanted.len().min(MOST_ENDPOINTS)) {
            let Some(owned) = self.endpoints.get_mut(&id) else {
                continue;
            };
            owned.wanted = false;
            let Some((mut limit, whole)) = owned.wants_fetch(now) else {
                continue;
            };
            if full && !owned.queue.is_empty() {
                // What is held is enough: the same again, its settings, or nothing yet.
                limit = if whole {
                    limit.min(owned.queue.len())
                } else if owned.is_stale(now) {
                    0
                } else {
                    continue;
                };
            }
            if whole {
                replaced += owned.queue.iter().map(|d| d.body.len()).sum::<usize>();
            }
            owned.fetching = true;
            skip.extend(owned.in_hand.iter().map(|event| (*event, id)));
            if !whole {
                skip.extend(owned.queue.iter().map(|d| (d.event_id, id)));
            }
            let limit = i32::try_from(limit).unwrap_or(i32::MAX);
            wanted.push((
                WantedRefill {
                    endpoint_id: id,
                    limit,
                },
                whole,
            ));
        }
        if wanted.is_empty() {
            return;
        }
        let replaced = i64::try_from(replaced).unwrap_or(i64::MAX);
        let room = if full {
            MOST_BYTES.min(MOST_BYTES_WHEN_FULL.saturating_add(replaced))
        } else {
            MOST_BYTES
        };
        self.fetching = true;
        let (db, worker, events) = (self.db.clone(), self.lease.worker, self.events.clone());
        tokio::spawn(async move {
            let refills: Vec<WantedRefill> = wanted.iter().map(|w| w.0).collect();
            let asked_at = Instant::now();
            let result = db.fetch(worker, &refills, &skip, room).await;
            events.send(Event::Fetched {
                wanted,
                asked_at,
                result,
            })
        });
    }

    pub(super) fn take_fetched(
        &mut self,
        mut wanted: Vec<(WantedRefill, bool)>,
        asked_at: Instant,
        result: Result<Vec<Fetched>, DbError>,
        now: Instant,
    ) {
        self.fetching = false;
        self.note_call("fetch", &result, Some(asked_at.elapsed()));
        let mut by_id = match result {
            Ok(fetched) => by_id(fetched),
            Err(_) => {
                self.fetch_at = now + Duration::from_millis(200);
                HashMap::new()
            }
        };
        let failed = self.fetch_at > now;
        // Those that got nothing are first next time: what was cut off for its bytes must get its turn.
        wanted.sort_by_key(|(refill, _)| {
            let fetched = by_id.get(&refill.endpoint_id);
            fetched.is_some_and(|f| !f.deliveries.is_empty())
        });
        for (refill, whole) in wanted {
            let id = refill.endpoint_id;
            let Some(owned) = self.endpoints.get_mut(&id) else {
                continue;
            };
            owned.fetching = false;
            match by_id.remove(&id) {
                Some(fetched) => self.refill(refill, whole, fetched, asked_at, now),
                None if failed => {}
                None => drop(self.forget(id)),
            }
            self.touch(id, now);
        }
    }

    /// Puts what was fetched for an endpoint into its queue.
    fn refill(
        &mut self,
        asked: WantedRefill,
        whole: bool,
        fetched: Fetched,
        asked_at: Instant,
        now: Instant,
    ) {
        let id = asked.endpoint_id;
        if fetched.settings.is_none() {
            // Not ours any more; should requests be open, their outcomes are still reported.
            drop(self.forget(id));
            return;
        }
        let Some(owned) = self.endpoints.get_mut(&id) else {
            return;
        };
        let limit = usize::try_from(asked.limit).unwrap_or(0);
        for (delivery, reason) in owned.take_fetched(fetched, limit, whole, asked_at, now) {
            self.refuse(id, &delivery, reason, now);
        }
    }
}

fn by_id(fetched: Vec<Fetched>) -> HashMap<i64, Fetched> {
    fetched.into_iter().map(|f| (f.endpoint_id, f)).collect()
}
