//! The audit: pure functions over the evidence, each giving the violations it found.

mod arrivals;
mod contents;
mod deliveries;
pub mod evidence;
mod signature;

use evidence::Evidence;

type Rule = fn(&Evidence) -> Vec<String>;

/// Every rule, with what it says.
pub const RULES: &[(&str, Rule)] = &[
    (
        "every committed event has a delivery for each endpoint subscribed to it",
        deliveries::made,
    ),
    (
        "every delivery ended, or waits, with a reason",
        deliveries::ended,
    ),
    (
        "what ended as delivered was answered with a 2xx",
        deliveries::answered,
    ),
    ("a committed event is in the database", deliveries::kept),
    (
        "nothing of a rolled-back transaction was ever seen",
        deliveries::rolled_back,
    ),
    (
        "what was delivered was never sent again",
        arrivals::sent_again,
    ),
    (
        "no two requests of a delivery overlapped",
        arrivals::one_flight,
    ),
    ("pace held in every window", arrivals::pace),
    ("concurrency held at every moment", arrivals::concurrency),
    ("requests ended by their time-out", arrivals::in_time),
    (
        "nothing started at an endpoint that an operator stopped",
        arrivals::stopped,
    ),
    ("the bytes sent are the bytes emitted", contents::bytes),
    (
        "every signature was made with a secret of the endpoint",
        contents::signed,
    ),
    ("workers ended only when they were made to", |e| {
        e.workers.clone()
    }),
    ("the server logged no error of the engine", |e| {
        e.server_errors.clone()
    }),
];

/// What a rule found.
pub struct Finding {
    pub rule: &'static str,
    pub violations: Vec<String>,
}

/// Applies every rule.
pub fn audit(evidence: &Evidence) -> Vec<Finding> {
    let findings = RULES.iter().map(|(rule, check)| Finding {
        rule,
        violations: check(evidence),
    });
    findings.collect()
}
