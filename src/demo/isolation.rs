//! What the five endpoints are there to show: a refusal is final, and a slow endpoint is alone with it.

use std::time::Duration;

use super::cast::Role;
use super::judge::{Checks, Evidence};
use super::receiver::Seen;
use super::show::{count, duration};

/// The slow endpoint's backlog must take this many times as long as anything to a fast one: far enough
/// that they cannot have waited for it, near enough for a busy machine.
const FAR: u32 = 4;

/// Checks what the five endpoints are there to show.
pub fn check(evidence: &Evidence, checks: &mut Checks) {
    for endpoint in evidence.with(Role::Refusing) {
        let requests = evidence.at(endpoint).count();
        let events = evidence.wanted(endpoint).len();
        checks.check(
            requests == events,
            "refused with 422, not retried",
            format_args!(
                "{} for {}",
                count(requests, "request"),
                count(events, "event")
            ),
        );
    }
    let fast: Vec<&Seen> = evidence
        .with(Role::Fast)
        .flat_map(|e| evidence.at(e))
        .collect();
    let last = fast.iter().map(|s| s.arrived).max();
    for endpoint in evidence.with(Role::Slow) {
        let done = |s: &&Seen| s.answered <= last;
        let finished = evidence.at(endpoint).filter(done).count();
        let owed = evidence.wanted(endpoint).len().saturating_sub(finished);
        let longest_fast = longest(evidence, fast.iter().copied());
        let longest_slow = longest(evidence, evidence.at(endpoint));
        checks.check(
            owed > 0 && last.is_some() && longest_fast * FAR < longest_slow,
            "the slow endpoint held nobody up",
            format_args!(
                "longest from commit to arrival: fast ones {}, slow one {}; it was still owed {} when they had everything",
                duration(longest_fast),
                duration(longest_slow),
                count(owed, "event"),
            ),
        );
    }
}

fn longest<'a>(evidence: &Evidence, seen: impl Iterator<Item = &'a Seen>) -> Duration {
    seen.filter_map(|s| {
        let emitted = evidence.emitted.get(&s.event()?)?;
        Some(s.arrived.saturating_duration_since(emitted.committed))
    })
    .max()
    .unwrap_or_default()
}
