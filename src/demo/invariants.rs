//! The specification's expectations and its two invariants, checked from what the receiver saw.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cast::{BACKOFF_S, Role};
use super::judge::{Checks, Evidence};
use super::receiver::{RETRY_AFTER_S, Seen};
use super::scenario::{Played, QUEUED};
use super::show::{count, duration};

/// How late a retry may be for all the work between, on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

/// Checks what the specification expects to be observed.
pub fn expectations(evidence: &Evidence, played: &Played, checks: &mut Checks) {
    let subject = subject(evidence, played);
    let answers: Vec<(u32, u16)> = subject.iter().map(|s| (s.attempt(), s.status)).collect();
    let list: Vec<String> = answers.iter().map(|(n, a)| format!("{n} → {a}")).collect();
    checks.check(
        answers == [(1, 500), (2, 429), (3, 200)],
        "attempts of the first event and their answers",
        list.join(", "),
    );
    let answered = subject.first().and_then(|s| s.answered);
    let wait = answered
        .zip(subject.get(1))
        .map(|(answered, next)| next.arrived.saturating_duration_since(answered));
    let longest = Duration::from_secs(BACKOFF_S.into());
    checks.check(
        wait.is_some_and(|w| w <= longest + SLACK),
        "the retry after the 500 came with jitter",
        format_args!(
            "after {}, drawn from 0 to {}",
            wait.map_or("never".to_owned(), duration),
            duration(longest)
        ),
    );
    checks.check(
        played.behind == QUEUED,
        "more events were queued when the 429 came",
        format_args!("{} in the view deliveries", played.behind),
    );
    let spec: Vec<i64> = evidence.with(Role::Spec).map(|e| e.id).collect();
    let attempts = || {
        evidence
            .attempts
            .iter()
            .filter(|a| spec.contains(&a.endpoint))
    };
    let limited = attempts().find(|a| a.status == Some(429)).map(|a| a.worker);
    let last = attempts().find(|a| a.event == played.subject && a.number == 3);
    checks.check(
        limited.is_some() && last.is_some_and(|a| Some(a.worker) != limited),
        "the worker that got the 429 was stopped in the pause, and another went on",
        format_args!(
            "{} sent to it",
            count(
                attempts().map(|a| a.worker).collect::<BTreeSet<_>>().len(),
                "worker"
            )
        ),
    );
}

/// Checks the two invariants.
pub fn invariants(evidence: &Evidence, played: &Played, checks: &mut Checks) {
    let subject = subject(evidence, played);
    let ids: BTreeSet<&str> = subject.iter().map(|s| s.header("webhook-id")).collect();
    let same =
        subject.len() == 3 && ids.len() == 1 && ids.contains(played.subject.to_string().as_str());
    checks.check(
        same,
        &verdict(same, 1, "one Webhook-Id on all attempts"),
        format_args!(
            "{} on {}",
            ids.iter().copied().collect::<Vec<_>>().join(", "),
            count(subject.len(), "attempt")
        ),
    );

    let seen: Vec<&Seen> = evidence
        .with(Role::Spec)
        .flat_map(|e| evidence.at(e))
        .collect();
    let pause = pause(&seen);
    let quiet = pause.as_ref().is_some_and(|p| p.during == 0);
    let found = pause.map_or("no 429 was given".to_owned(), |p| {
        format!(
            "{} of {} came in the {RETRY_AFTER_S} s after the 429; the next after {}, {} from then on",
            p.during,
            count(seen.len(), "request"),
            p.next.map_or("never".to_owned(), duration),
            p.after,
        )
    });
    let what = "nothing sent to that endpoint by anyone during the pause";
    checks.check(quiet, &verdict(quiet, 2, what), found);
}

/// The requests for the first event, told by their body, since the id is what is to be proved.
fn subject<'a>(evidence: &'a Evidence, played: &Played) -> Vec<&'a Seen> {
    let event = evidence.emitted.get(&played.subject);
    let body = event.map(|e| e.body.as_bytes());
    let all = evidence.with(Role::Spec).flat_map(|e| evidence.at(e));
    all.filter(|s| Some(&s.body[..]) == body).collect()
}

struct Pause {
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
        during: later().filter(|s| s.arrived < end).count(),
        next: later()
            .map(|s| s.arrived.saturating_duration_since(answered))
            .min(),
        after: later().filter(|s| s.arrived >= end).count(),
    })
}

fn verdict(held: bool, number: u8, what: &str) -> String {
    format!(
        "invariant {number} {}, {what}",
        if held { "held" } else { "NOT held" }
    )
}
