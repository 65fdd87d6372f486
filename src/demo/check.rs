//! What must hold for every endpoint, judged by what the receiver saw.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use uuid::Uuid;

use super::cast::{Role, Style};
use super::judge::{Checks, Evidence};
use super::receiver::Seen;
use super::show::count;
use super::verify;

/// Checks what must hold for every endpoint.
pub fn everywhere(evidence: &Evidence, checks: &mut Checks) {
    bodies(evidence, checks);
    signatures(evidence, checks);
    completeness(evidence, checks);
    concurrency(evidence, checks);
    outcomes(evidence, checks);
}

fn bodies(evidence: &Evidence, checks: &mut Checks) {
    let differs = |s: &&Seen| {
        let emitted = s.event().and_then(|id| evidence.emitted.get(&id));
        emitted.is_none_or(|e| e.body.as_bytes() != s.body)
    };
    let wrong: Vec<_> = evidence.seen.iter().filter(differs).map(name).collect();
    let bytes: usize = evidence.seen.iter().map(|s| s.body.len()).sum();
    let requests = count(evidence.seen.len(), "request");
    let mega = bytes as f64 / 1e6;
    checks.all(
        "every body is byte for byte what was emitted",
        &wrong,
        format_args!("{requests}, {mega:.1} MB compared"),
    );
}

fn signatures(evidence: &Evidence, checks: &mut Checks) {
    let mut wrong = Vec::new();
    let mut right = HashMap::from([(Style::Stripe.name(), 0), (Style::Standard.name(), 0)]);
    for endpoint in evidence.endpoints {
        let style = endpoint.part.style;
        for seen in evidence.at(endpoint) {
            match verify::signature(style, &endpoint.secret, seen) {
                Ok(()) => *right.entry(style.name()).or_default() += 1,
                Err(why) => wrong.push(format!("{}: {why}", name(seen))),
            }
        }
    }
    let (stripe, standard) = (right["stripe"], right["standard"]);
    checks.all(
        "every signature is valid",
        &wrong,
        format_args!("{stripe} in stripe style, {standard} in standard style"),
    );
    checks.check(
        stripe > 0 && standard > 0,
        "both styles were used",
        "stripe and standard",
    );
}

fn completeness(evidence: &Evidence, checks: &mut Checks) {
    let mut wrong = Vec::new();
    let mut repeated = Vec::new();
    let mut pairs = 0;
    for endpoint in evidence.endpoints {
        let name = endpoint.part.name;
        let wanted = evidence.wanted(endpoint);
        pairs += wanted.len();
        let got: HashSet<Uuid> = evidence.at(endpoint).filter_map(Seen::event).collect();
        if wanted != got {
            let missing = wanted.difference(&got).count();
            let foreign = got.difference(&wanted).count();
            wrong.push(format!(
                "{name} missed {missing} and got {foreign} it never asked for"
            ));
        }
        let mut accepted = HashSet::new();
        for seen in evidence.at(endpoint) {
            if accepted.contains(&seen.event()) {
                repeated.push(format!("{name} got {} again", seen.header("webhook-id")));
            }
            if seen.accepted() {
                accepted.insert(seen.event());
            }
        }
    }
    let endpoints = count(evidence.endpoints.len(), "endpoint");
    checks.all(
        "every endpoint got the events it subscribed to, and no others",
        &wrong,
        format_args!("{pairs} pairs of event and endpoint, {endpoints}"),
    );
    checks.all(
        "no duplicates",
        &repeated,
        "nothing was sent again after a 2xx",
    );
}

fn concurrency(evidence: &Evidence, checks: &mut Checks) {
    let (mut wrong, mut most) = (Vec::new(), Vec::new());
    for endpoint in evidence.endpoints {
        let Some(limit) = endpoint.part.concurrency else {
            continue;
        };
        let mut edges: Vec<(Instant, i32)> = evidence
            .at(endpoint)
            .filter_map(|s| Some([(s.arrived, 1), (s.answered?, -1)]))
            .flatten()
            .collect();
        edges.sort();
        let mut open = 0;
        let peak = edges
            .iter()
            .map(|(_, by)| {
                open += by;
                open
            })
            .max()
            .unwrap_or(0);
        let text = format!("{} {peak} of {limit}", endpoint.part.name);
        if peak > limit {
            wrong.push(text);
        } else {
            most.push(text);
        }
    }
    checks.all(
        "no endpoint had more open requests than it may",
        &wrong,
        most.join(", "),
    );
}

fn outcomes(evidence: &Evidence, checks: &mut Checks) {
    let mut totals: HashMap<&str, i64> = HashMap::new();
    let mut wrong = Vec::new();
    for (id, status, number) in &evidence.outcomes {
        *totals.entry(status).or_default() += number;
        let endpoint = evidence.endpoints.iter().find(|e| e.id == *id);
        let refusing = endpoint.is_some_and(|e| e.part.role == Role::Refusing);
        if status != if refusing { "rejected" } else { "delivered" } {
            let name = endpoint.map_or("?", |e| e.part.name);
            wrong.push(format!("{name} has {number} {status}"));
        }
    }
    let wanted: usize = evidence
        .endpoints
        .iter()
        .map(|e| evidence.wanted(e).len())
        .sum();
    let found = usize::try_from(totals.values().sum::<i64>()).unwrap_or(0);
    if found != wanted {
        wrong.push(format!("{found} deliveries where {wanted} are owed"));
    }
    let of = |status| totals.get(status).copied().unwrap_or(0);
    checks.all(
        "every delivery ended delivered or rejected",
        &wrong,
        format_args!("{} delivered, {} rejected", of("delivered"), of("rejected")),
    );

    let ids: HashMap<&str, i64> = evidence
        .endpoints
        .iter()
        .map(|e| (e.part.name, e.id))
        .collect();
    let mut seen: Vec<_> = evidence
        .seen
        .iter()
        .filter_map(|s| {
            let endpoint = ids.get(s.endpoint.as_str())?;
            Some((
                s.event()?,
                *endpoint,
                i32::try_from(s.attempt()).ok()?,
                Some(i32::from(s.status)),
            ))
        })
        .collect();
    let mut logged: Vec<_> = evidence
        .attempts
        .iter()
        .map(|a| (a.event, a.endpoint, a.number, a.status))
        .collect();
    seen.sort_unstable();
    logged.sort_unstable();
    checks.check(
        seen == logged && seen.len() == evidence.seen.len(),
        "the attempts logged are the requests seen",
        format_args!(
            "{} logged, {} seen, number and status compared",
            logged.len(),
            evidence.seen.len()
        ),
    );
}

fn name(seen: &Seen) -> String {
    format!(
        "{} {} attempt {}",
        seen.endpoint,
        seen.header("webhook-id"),
        seen.attempt()
    )
}
