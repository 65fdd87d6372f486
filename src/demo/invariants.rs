//! The specification's expectations and its two invariants, checked from what the receiver saw.

use std::collections::HashSet;
use std::time::Duration;

use super::cast::{BACKOFF_S, Role};
use super::judge::{Checks, Evidence};
use super::receiver::{RETRY_AFTER_S, Seen};
use super::scenario::{Played, QUEUED};
use super::show::{count, duration, line};

/// Checks the scenario; the two invariants last.
pub fn check(evidence: &Evidence, played: &Played, checks: &mut Checks) {
    let Some(endpoint) = evidence.with(Role::Spec).next() else {
        return checks.check(false, "the scenario was played", "its endpoint is missing");
    };
    let seen: Vec<&Seen> = evidence.at(endpoint).collect();
    let body = evidence
        .emitted
        .get(&played.subject)
        .map(|e| e.body.as_bytes());
    // Told apart by the body, since the id is what is to be proved.
    let of_subject: Vec<&Seen> = seen
        .iter()
        .copied()
        .filter(|s| Some(&s.body[..]) == body)
        .collect();

    let answers: Vec<(u32, u16)> = of_subject.iter().map(|s| (s.attempt(), s.status)).collect();
    checks.check(
        answers == [(1, 500), (2, 429), (3, 200)],
        "attempt 1 → 500, attempt 2 → 429, attempt 3 → 200",
        format_args!("{answers:?}"),
    );
    let wait = of_subject
        .first()
        .and_then(|s| s.answered)
        .zip(of_subject.get(1))
        .map(|(answered, next)| next.arrived.saturating_duration_since(answered));
    let longest = Duration::from_secs(BACKOFF_S.into());
    checks.check(
        // The delay is drawn up to `longest`; the rest is the way through the database and two processes' worth of work.
        wait.is_some_and(|w| w <= longest + Duration::from_secs(1)),
        "the retry after the 500 came within the jittered delay",
        format_args!(
            "after {}, drawn from 0 to {}",
            duration(wait.unwrap_or_default()),
            duration(longest)
        ),
    );
    checks.check(
        usize::try_from(played.behind).is_ok_and(|b| b == QUEUED),
        "more events were queued when the 429 came",
        format_args!("{} in deliveries", played.behind),
    );

    let ids: HashSet<&str> = of_subject.iter().map(|s| s.header("webhook-id")).collect();
    let same = of_subject.len() == 3
        && ids.len() == 1
        && ids.contains(played.subject.to_string().as_str());
    let pause = pause(&seen);
    let quiet = pause.as_ref().is_some_and(|p| p.during == 0);

    line("");
    checks.check(
        same,
        &verdict(same, "Invariant 1", "one Webhook-Id on all attempts"),
        format_args!(
            "{} on {}",
            ids.iter().copied().collect::<Vec<_>>().join(", "),
            count(of_subject.len(), "attempt")
        ),
    );
    let found = pause.map_or("no 429 was given".to_owned(), |p| {
        format!(
            "{} of {} arrived in the {RETRY_AFTER_S} s after the 429; the next after {}, then all {} of the queue",
            p.during,
            count(p.requests, "request"),
            p.next.map_or("never".to_owned(), duration),
            p.after,
        )
    });
    checks.check(
        quiet,
        &verdict(
            quiet,
            "Invariant 2",
            "nothing sent to that endpoint by anyone during the pause",
        ),
        found,
    );
}

struct Pause {
    requests: usize,
    during: usize,
    next: Option<Duration>,
    after: usize,
}

fn pause(seen: &[&Seen]) -> Option<Pause> {
    let begin = seen.iter().find(|s| s.status == 429)?;
    let answered = begin.answered?;
    let end = answered + Duration::from_secs(RETRY_AFTER_S);
    let later = || seen.iter().filter(|s| s.arrived > begin.arrived);
    Some(Pause {
        requests: seen.len(),
        during: later().filter(|s| s.arrived < end).count(),
        next: later()
            .map(|s| s.arrived.saturating_duration_since(answered))
            .min(),
        after: later().filter(|s| s.arrived >= end).count(),
    })
}

fn verdict(held: bool, name: &str, what: &str) -> String {
    format!("{name} {}: {what}", if held { "held" } else { "NOT held" })
}
