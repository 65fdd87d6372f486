//! Rules about when requests came.

use std::collections::HashMap;

use uuid::Uuid;

use super::evidence::{Evidence, Freeze, Seen};

/// How much later than it left a request may be noted here, on a busy machine.
const NOTED_LATE_S: f64 = 0.3;
/// How much longer than its time-out a request may look open from here.
const SLACK_S: f64 = 2.0;
/// How long after an operator's call returned an endpoint may still be sent to, in the worst case that the design
/// grants (what was in hand when a notification was lost), and a busy machine.
const TAKES_EFFECT_S: f64 = 1.0 + SLACK_S;

fn by_path(evidence: &Evidence) -> HashMap<&str, Vec<&Seen>> {
    let mut all: HashMap<&str, Vec<&Seen>> = HashMap::new();
    for request in &evidence.requests {
        all.entry(&request.path).or_default().push(request);
    }
    all
}

impl Evidence {
    /// The earliest that somebody else may take over what a frozen worker had open: a lease after its last beat.
    fn takeover(&self, freeze: &Freeze) -> f64 {
        (freeze.beat + self.lease - NOTED_LATE_S).max(freeze.span.from)
    }

    /// The earliest that somebody else may have what a live worker sent then: its lease held at that moment, and ends
    /// for others a sixth later than for itself.
    fn overtaken(&self, sent: f64) -> f64 {
        sent + self.lease / 6.0 - NOTED_LATE_S
    }

    /// Until when a request counts as open: one that a frozen worker had open is excused once another may have taken
    /// over.
    fn counts_until(&self, request: &Seen) -> f64 {
        let end = request.finished.unwrap_or(f64::INFINITY);
        let longest = request.arrived + self.request_timeout + SLACK_S;
        // The worker had it open when it froze, and for long enough to be taken for dead.
        let begun = |from: f64| from >= request.arrived - NOTED_LATE_S && from <= longest;
        let excused = self
            .freezes
            .iter()
            .filter(|f| begun(f.span.from) && f.span.to >= self.takeover(f));
        let excused = excused.map(|f| self.takeover(f));
        excused.fold(end, f64::min)
    }
}

/// A delivery that ended as delivered is not sent again, unless replayed.
pub fn sent_again(evidence: &Evidence) -> Vec<String> {
    let ids: HashMap<&str, i64> = evidence
        .endpoints
        .iter()
        .map(|e| (e.path.as_str(), e.id))
        .collect();
    let mut accepted: HashMap<(Uuid, i64), f64> = HashMap::new();
    let mut found = Vec::new();
    for request in &evidence.requests {
        let key = request.event().zip(ids.get(request.path.as_str()).copied());
        let Some(key) = key.filter(|key| !evidence.replayed.contains(key)) else {
            continue;
        };
        if request.accepted {
            accepted.entry(key).or_insert(request.arrived);
        }
        let delivered = evidence
            .deliveries
            .get(&key)
            .filter(|d| d.status == "delivered");
        let Some(at) = delivered.and_then(|d| d.finished) else {
            continue;
        };
        // Who had taken the endpoint over before a late report came may have it in hand, for as long as anything is
        // held; and a request may leave before the statement that ended it began, and be noted after.
        let late = accepted
            .get(&key)
            .is_some_and(|sent| evidence.overtaken(*sent) < at);
        let grace = if late { TAKES_EFFECT_S } else { NOTED_LATE_S };
        if request.arrived > at + grace {
            found.push(format!(
                "{request} came after its delivery had ended at {at:.3}"
            ));
        }
    }
    found
}

/// Two requests of one delivery are never open at once.
pub fn one_flight(evidence: &Evidence) -> Vec<String> {
    let mut open: HashMap<(&str, &str), Vec<&Seen>> = HashMap::new();
    let mut found = Vec::new();
    for request in &evidence.requests {
        let earlier = open.entry((&request.path, &request.id)).or_default();
        for other in earlier.iter() {
            let until = evidence.counts_until(other);
            // The end of one connection and the beginning of the next are noted in any order.
            if request.arrived + 0.05 < until {
                found.push(format!(
                    "{request} while the one of {:.3} was open, until {until:.3}",
                    other.arrived
                ));
            }
        }
        earlier.push(request);
    }
    found
}

/// In every window of T seconds at most `burst + rate·T` requests.
pub fn pace(evidence: &Evidence) -> Vec<String> {
    let all = by_path(evidence);
    let mut found = Vec::new();
    for endpoint in &evidence.endpoints {
        let Some(requests) = all.get(endpoint.path.as_str()) else {
            continue;
        };
        let most = endpoint.burst + endpoint.rate * NOTED_LATE_S + 1.0;
        // Of all windows that end with a request, the worst begins where count - rate·time is least.
        let mut begin: Option<(f64, usize)> = None;
        for (n, request) in requests.iter().enumerate() {
            let here = n as f64 - endpoint.rate * request.arrived;
            if begin.is_none_or(|(least, _)| here < least) {
                begin = Some((here, n));
            }
            let (least, from) = begin.unwrap_or((here, n));
            if here - least + 1.0 > most {
                let window = request.arrived - requests[from].arrived;
                found.push(format!(
                    "{} requests to {} in the {window:.3} s before {:.3} ({} + {}/s)",
                    n - from + 1,
                    endpoint.path,
                    request.arrived,
                    endpoint.burst,
                    endpoint.rate
                ));
                begin = None;
            }
        }
    }
    found
}

/// Never more than `concurrency` open requests.
pub fn concurrency(evidence: &Evidence) -> Vec<String> {
    let all = by_path(evidence);
    let mut found = Vec::new();
    for endpoint in &evidence.endpoints {
        let mut open: Vec<f64> = Vec::new();
        for request in all.get(endpoint.path.as_str()).into_iter().flatten() {
            open.retain(|until| *until > request.arrived + 0.05);
            open.push(evidence.counts_until(request));
            if open.len() > endpoint.concurrency {
                found.push(format!(
                    "{} requests open at {} at {:.3}, of {}",
                    open.len(),
                    endpoint.path,
                    request.arrived,
                    endpoint.concurrency
                ));
                open.clear();
            }
        }
    }
    found
}

/// No request is open for longer than its time-out, unless a worker was frozen.
pub fn in_time(evidence: &Evidence) -> Vec<String> {
    let limit = evidence.request_timeout + SLACK_S;
    let late = |request: &&Seen| {
        let end = request.finished.unwrap_or(f64::INFINITY);
        let excused = evidence
            .freezes
            .iter()
            .any(|f| f.span.overlaps(request.arrived, request.arrived + limit));
        end - request.arrived > limit && !excused
    };
    evidence
        .requests
        .iter()
        .filter(late)
        .map(|r| format!("{r} was open for over {limit} s"))
        .collect()
}

/// What a person paused, disabled or deleted gets no request any more.
pub fn stopped(evidence: &Evidence) -> Vec<String> {
    let all = by_path(evidence);
    let mut found = Vec::new();
    for stop in &evidence.stopped {
        let from = stop.span.from + TAKES_EFFECT_S;
        for request in all.get(stop.path.as_str()).into_iter().flatten() {
            if request.arrived <= from || request.arrived >= stop.span.to {
                continue;
            }
            // A worker that was frozen meanwhile has not had its second.
            if !evidence
                .freezes
                .iter()
                .any(|f| f.span.overlaps(stop.span.from, request.arrived))
            {
                found.push(format!(
                    "{request}, which was {} at {:.3}",
                    stop.how, stop.span.from
                ));
            }
        }
    }
    found
}
