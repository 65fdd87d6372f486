//! An owned endpoint: what the worker holds of it, and what may happen to it next.
//!
//! Nothing is marked in the database when a delivery is fetched, so the owner must remember: a delivery in
//! flight, or whose outcome is not yet stored, is *in hand* and is never started again.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{gate::Gate, target::Target};
use crate::db::{Delivery, Fetched, Settings, Verdict};

/// How long settings may be used after they were asked for. What an operator changes takes effect within it.
const FRESH: Duration = Duration::from_secs(1);
/// When to ask for them anew, so that sending goes on meanwhile.
const REFRESH: Duration = Duration::from_millis(600);
/// A fetch that took long still permits something: large bodies over a slow line must get through.
const LEAST_FRESH: Duration = Duration::from_millis(200);
/// How long a delivery may wait here before it is asked for again: another may have settled it, as a worker does
/// whose lease lapsed and whose 2xx came late.
const HELD_REFRESH: Duration = Duration::from_secs(1);
/// How long it may wait here and still be sent.
const HELD_FRESH: Duration = Duration::from_secs(2);
/// Most deliveries of one endpoint held at once.
const MOST_HELD: usize = 500;
/// How long an idle or paused endpoint is kept.
pub(super) const KEEP: Duration = Duration::from_secs(3);

/// How the endpoint last answered; decides how many slots it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastAnswer {
    /// Not asked yet, or quick.
    Quick,
    /// Took over a second.
    Slow,
    /// None came.
    None,
}

/// Whether the next request of an endpoint may start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It needs a slot only.
    Now,
    /// Not before then.
    At(Instant),
    /// Not until something happens: an answer, a fetch, a report.
    Later,
}

/// An endpoint that this worker owns.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) gate: Arc<Gate>,
    pub(super) target: Option<Arc<Target>>,
    pub(super) queue: VecDeque<Delivery>,
    /// Deliveries in flight, or whose outcome is not stored yet.
    pub(super) in_hand: HashSet<Uuid>,
    /// When each open request was started, by its number.
    open: BTreeMap<i64, Instant>,
    /// Failures among what is in hand that are not stored yet: each holds its place, so that a failing
    /// endpoint is never asked faster than its failures are counted.
    pub(super) unstored_failures: usize,
    /// Outcomes that the database refuses: until they are stored, nothing more is sent.
    pub(super) stuck: usize,
    pub(super) last_answer: LastAnswer,
    /// A fetch is under way.
    pub(super) fetching: bool,
    /// To be given up once its flights have landed and are reported; starts nothing more.
    pub(super) leaving: bool,
    /// Is in the ready queue.
    pub(super) queued: bool,
    /// Is among those to fetch for.
    pub(super) wanted: bool,
    /// Its entry among the timers.
    pub(super) timer: Option<Instant>,
    /// Stored while a fetch was under way: that fetch may still return them.
    just_stored: HashSet<Uuid>,
    /// The pace stored by the owner before us, until settings are known.
    ahead: Duration,
    settings: Option<Settings>,
    /// When the settings in use were asked for.
    asked_at: Option<Instant>,
    /// When they came.
    taken_at: Instant,
    /// Something may have become due, or changed, at that time.
    poked_at: Option<Instant>,
    /// More is due than was fetched.
    more: bool,
    next_due: Option<Instant>,
    verdict_at: Option<Instant>,
    probing: bool,
    /// A delivery was answered, but not delivered: it may be due again once that is stored.
    pub(super) revisit: bool,
    pub(super) active_at: Instant,
    started: (Instant, usize, usize),
}

impl Owned {
    pub(super) fn new(ahead: Duration, now: Instant) -> Self {
        Self {
            gate: Arc::new(Gate::new(now)),
            target: None,
            queue: VecDeque::new(),
            in_hand: HashSet::new(),
            open: BTreeMap::new(),
            unstored_failures: 0,
            stuck: 0,
            last_answer: LastAnswer::Quick,
            fetching: false,
            leaving: false,
            queued: false,
            wanted: false,
            timer: None,
            just_stored: HashSet::new(),
            ahead,
            settings: None,
            asked_at: None,
            taken_at: now,
            poked_at: Some(now),
            more: false,
            next_due: None,
            verdict_at: None,
            probing: false,
            revisit: false,
            active_at: now,
            started: (now, 0, 0),
        }
    }

    pub(super) fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    pub(super) fn concurrency(&self) -> usize {
        match (&self.settings, self.last_answer) {
            (Some(_), _) if self.probing => 1,
            (Some(_), LastAnswer::None) => 1,
            (Some(settings), _) => usize::try_from(settings.concurrency).unwrap_or(1).max(1),
            (None, _) => 0,
        }
    }

    /// Something may be due: look again, even if a fetch is under way.
    pub(super) fn poke(&mut self, now: Instant) {
        self.poked_at = Some(now);
    }

    pub(super) fn may_start(&self, now: Instant) -> Start {
        let Some(front) = self.queue.front() else {
            return Start::Later;
        };
        if self.leaving
            || self.gate.stopped()
            || self.stuck > 0
            || self.open.len() + self.unstored_failures >= self.concurrency()
            // As many again may wait to be stored, and no more.
            || self.in_hand.len() >= 2 * self.concurrency()
        {
            return Start::Later;
        }
        if self
            .asked_at
            .is_none_or(|at| now >= (at + FRESH).max(self.taken_at + LEAST_FRESH))
            || now >= (front.fetched_at + HELD_FRESH).max(self.taken_at + LEAST_FRESH)
        {
            return Start::Later;
        }
        if let Some(until) = self.gate.paused_until(now) {
            return Start::At(until);
        }
        match self.gate.next_token(now) {
            at if at <= now => Start::Now,
            at => Start::At(at),
        }
    }

    /// How many deliveries can be started within about one second.
    fn capacity(&self, now: Instant) -> usize {
        let Some(settings) = &self.settings else {
            return 20;
        };
        let (since, count, before) = self.started;
        let recent = if now.duration_since(since) < Duration::from_secs(2) {
            count.max(before)
        } else {
            0
        };
        let paced = (settings.rate.ceil().clamp(1.0, 1e6) as usize)
            .saturating_add(usize::try_from(settings.burst).unwrap_or(usize::MAX));
        (2 * self.concurrency() + recent)
            .min(paced)
            .clamp(1, MOST_HELD)
    }

    /// A request of the endpoint was started.
    pub(super) fn note_start(&mut self, seq: i64, now: Instant) {
        self.open.insert(seq, now);
        self.active_at = now;
        let (since, count, _) = self.started;
        if now.duration_since(since) >= Duration::from_secs(1) {
            self.started = (now, 1, count);
        } else {
            self.started.1 += 1;
        }
    }

    /// A request of the endpoint ended.
    pub(super) fn note_end(&mut self, seq: i64, now: Instant) {
        self.open.remove(&seq);
        self.active_at = now;
    }

    /// When the longest open of its requests was started.
    pub(super) fn oldest_start(&self) -> Option<Instant> {
        self.open.first_key_value().map(|(_, at)| *at)
    }

    /// Whether to fetch now: how many at most, and whether in place of what is queued.
    pub(super) fn wants_fetch(&self, now: Instant) -> Option<(usize, bool)> {
        if self.fetching || self.leaving {
            return None;
        }
        let capacity = self.capacity(now);
        let poked = self.poked_at.is_some() || self.next_due.is_some_and(|at| at <= now);
        if self.gate.paused_until(now).is_some() {
            return self.poked_at.is_some().then_some((capacity, true));
        }
        // What was due before a pause is due after it, and nobody will say so.
        if let Some(end) = self.gate.pause_end()
            && self.asked_at.is_none_or(|at| at < end)
        {
            return Some((capacity, true));
        }
        // Those in front have waited longest.
        if self
            .queue
            .front()
            .is_some_and(|d| now >= d.fetched_at + HELD_REFRESH)
        {
            return Some((capacity, true));
        }
        let low = self.queue.len() <= capacity / 2;
        if poked || (low && self.more) || (self.is_stale(now) && !self.queue.is_empty()) {
            return Some((capacity.saturating_sub(self.queue.len()), false));
        }
        None
    }

    /// How many deliveries to fetch for it at most, if it has none and waits for nothing.
    pub(super) fn room_if_idle(&self, now: Instant) -> Option<usize> {
        let idle = !self.fetching
            && !self.leaving
            && self.queue.is_empty()
            && self.in_hand.is_empty()
            && !self.gate.stopped()
            && self.gate.paused_until(now).is_none();
        idle.then(|| self.capacity(now))
    }

    /// Whether its settings are to be asked for anew.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        self.asked_at
            .is_none_or(|at| now >= (at + REFRESH).max(self.taken_at + LEAST_FRESH))
    }

    /// When `wants_fetch` or `may_start` could change by time alone.
    pub(super) fn next_turn(&self, now: Instant) -> Instant {
        let start = match self.may_start(now) {
            Start::At(at) => Some(at),
            Start::Now | Start::Later => None,
        };
        let refresh = self
            .asked_at
            .filter(|_| !self.queue.is_empty())
            .map(|at| (at + REFRESH).max(self.taken_at + LEAST_FRESH));
        let held = self.queue.front().map(|d| d.fetched_at + HELD_REFRESH);
        [
            self.gate.paused_until(now),
            self.next_due,
            start,
            refresh,
            held,
        ]
        .into_iter()
        .flatten()
        // What has passed already is being waited for in another way: a fetch, a slot, an answer.
        .filter(|at| *at > now)
        .fold(now + KEEP, Instant::min)
    }

    /// Takes what a fetch returned. Returns the deliveries of an endpoint whose settings cannot be used,
    /// with the reason: each is ended visibly.
    pub(super) fn take_fetched(
        &mut self,
        fetched: Fetched,
        limit: usize,
        whole: bool,
        asked_at: Instant,
        now: Instant,
    ) -> Vec<(Delivery, String)> {
        self.fetching = false;
        self.taken_at = now;
        let just_stored = std::mem::take(&mut self.just_stored);
        let answered = self.poked_at.is_some_and(|at| at <= asked_at);
        if answered {
            self.poked_at = None;
        }
        let mut fresh: Vec<Delivery> = fetched.deliveries;
        let received = fresh.len();
        fresh.retain(|d| !self.in_hand.contains(&d.event_id) && !just_stored.contains(&d.event_id));
        if whole {
            self.queue.clear();
        } else {
            let held: HashSet<Uuid> = self.queue.iter().map(|d| d.event_id).collect();
            fresh.retain(|d| !held.contains(&d.event_id));
        }
        if !fresh.is_empty() {
            self.active_at = now;
        }
        let target = match fetched.settings {
            Some(Ok(settings)) => {
                self.more = if limit > 0 {
                    received < settings.due || settings.due >= limit
                } else {
                    // Asked for no deliveries, it says nothing about them.
                    self.more || answered
                };
                self.next_due = settings
                    .next_due_ms
                    .map(|ms| now + Duration::from_millis(ms));
                self.use_settings(settings, asked_at, now)
            }
            Some(Err(unreadable)) => Err(unreadable),
            None => return Vec::new(),
        };
        match target {
            Ok(()) => {
                if !self.gate.stopped() {
                    self.queue.extend(fresh);
                }
                Vec::new()
            }
            Err(reason) => {
                self.asked_at = Some(asked_at);
                let held = std::mem::take(&mut self.queue);
                held.into_iter()
                    .chain(fresh)
                    .map(|d| (d, reason.clone()))
                    .collect()
            }
        }
    }

    fn use_settings(
        &mut self,
        settings: Settings,
        asked_at: Instant,
        now: Instant,
    ) -> Result<(), String> {
        let ahead = self
            .settings
            .is_none()
            .then(|| std::mem::take(&mut self.ahead));
        self.gate
            .set_pace(settings.rate, settings.burst, ahead, now);
        // A verdict that came after this was asked for knows more: only ever add to it.
        let outdated = self.verdict_at.is_some_and(|at| at > asked_at);
        let told = settings.paused_ms.map(|ms| now + Duration::from_millis(ms));
        let known = self.gate.told_until();
        let stopped = settings.stopped || (outdated && self.gate.stopped());
        self.gate
            .tell(if outdated { told.max(known) } else { told }, stopped);
        if stopped {
            // Nothing is sent any more, so nothing of it need be usable: a deleted endpoint has no secret.
            self.queue.clear();
            self.target = None;
            self.settings = Some(settings);
            self.asked_at = Some(asked_at);
            return Ok(());
        }
        let usable = match (&self.target, &self.settings) {
            (Some(target), Some(old)) if target.fits(old, &settings) => Ok(target.clone()),
            _ => Target::new(&settings).map(Arc::new),
        };
        if !outdated {
            self.probing = settings.probing;
        }
        self.settings = Some(settings);
        self.asked_at = Some(asked_at);
        self.target = Some(usable?);
        Ok(())
    }

    /// The outcome of a delivery is stored: it is in nobody's hand any more.
    pub(super) fn stored(&mut self, event_id: Uuid, failed: bool) {
        self.in_hand.remove(&event_id);
        self.unstored_failures -= usize::from(failed).min(self.unstored_failures);
        if self.fetching {
            self.just_stored.insert(event_id);
        }
    }

    /// Takes what a report returned.
    pub(super) fn take_verdict(&mut self, verdict: &Verdict, now: Instant) {
        self.verdict_at = Some(now);
        let until = (!verdict.paused.is_zero()).then(|| now + verdict.paused);
        self.gate.tell(until, verdict.stopped);
        self.probing = verdict.probing;
        if std::mem::take(&mut self.revisit) {
            self.poked_at = Some(now);
        }
        // The earliest delivery owed may be one in hand or queued: then it says nothing about the rest.
        if let Some(next) = verdict.next_due.filter(|next| !next.is_zero()) {
            let at = now + next;
            self.next_due = Some(self.next_due.map_or(at, |known| known.min(at)));
        }
        if verdict.stopped {
            self.queue.clear();
        }
    }

    /// Nothing in hand: another worker may have it.
    pub(super) fn may_leave(&self) -> bool {
        self.in_hand.is_empty() && self.open.is_empty() && !self.fetching
    }

    /// Whether it can be given up: nothing in hand, and nothing to do for a while.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        if !self.may_leave() {
            return false;
        }
        if self.leaving || self.gate.stopped() {
            return true;
        }
        if let Some(until) = self.gate.paused_until(now) {
            return until > now + KEEP && self.poked_at.is_none();
        }
        self.queue.is_empty()
            && !self.more
            && self.poked_at.is_none()
            && now >= self.active_at + KEEP
            && self.next_due.is_none_or(|at| at > now + KEEP)
    }
}
