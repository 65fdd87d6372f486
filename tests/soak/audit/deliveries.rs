//! Rules about what became of events and deliveries.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::evidence::{Emitted, Ending, Endpoint, Evidence};

impl Evidence {
    /// The emitted events that exist: told by their body where the answer with the id was lost.
    fn existing(&self) -> Vec<(&Emitted, Uuid)> {
        let by_body: HashMap<&str, Uuid> = self
            .events
            .iter()
            .map(|(id, body)| (body.as_str(), *id))
            .collect();
        let found = |e| by_body.get(Emitted::body(e)).map(|id| (e, *id));
        self.emitted.iter().filter_map(found).collect()
    }
}

impl Emitted {
    fn body(&self) -> &str {
        &self.body
    }
}

/// Every event that exists has a delivery for each endpoint that was subscribed when it was fanned out.
pub fn made(evidence: &Evidence) -> Vec<String> {
    let mut first_end: HashMap<Uuid, f64> = HashMap::new();
    for ((event, _), delivery) in &evidence.deliveries {
        if let Some(at) = delivery.finished {
            let first = first_end.entry(*event).or_insert(at);
            *first = first.min(at);
        }
    }
    let mut found = Vec::new();
    for (emitted, id) in evidence.existing() {
        // Fan-out is after the commit, so before an endpoint's deletion only if something shows it.
        let Ending::Committed(committed) = emitted.ending else {
            continue;
        };
        let fanned_out_before = |at: f64| first_end.get(&id).is_some_and(|end| *end < at);
        let was_there = |e: &Endpoint| {
            e.created.is_some_and(|at| at < committed) && e.deleted.is_none_or(fanned_out_before)
        };
        for endpoint in &evidence.endpoints {
            let owed = endpoint.wants(&emitted.tenant, &emitted.event_type) && was_there(endpoint);
            if owed && !evidence.deliveries.contains_key(&(id, endpoint.id)) {
                found.push(format!(
                    "event {id}, committed at {committed:.3}, has no delivery to {}",
                    endpoint.path
                ));
            }
        }
    }
    found
}

/// A delivery was delivered, or has another state and a reason.
pub fn ended(evidence: &Evidence) -> Vec<String> {
    let without = |(key, delivery): (&(Uuid, i64), &super::evidence::Delivery)| {
        let said = delivery.reason.as_ref().is_some_and(|r| !r.is_empty());
        (delivery.status != "delivered" && !said).then(|| {
            format!(
                "event {} to endpoint {} is {} without a reason",
                key.0, key.1, delivery.status
            )
        })
    };
    evidence.deliveries.iter().filter_map(without).collect()
}

/// What is called delivered was answered with a 2xx.
pub fn answered(evidence: &Evidence) -> Vec<String> {
    let accepted: HashSet<(&str, Uuid)> = evidence
        .requests
        .iter()
        .filter(|r| r.accepted)
        .filter_map(|r| Some((r.path.as_str(), r.event()?)))
        .collect();
    let paths: HashMap<i64, &str> = evidence
        .endpoints
        .iter()
        .map(|e| (e.id, e.path.as_str()))
        .collect();
    let mut found = Vec::new();
    for ((event, endpoint), delivery) in &evidence.deliveries {
        let path = paths.get(endpoint).copied().unwrap_or_default();
        if delivery.status == "delivered" && !accepted.contains(&(path, *event)) {
            found.push(format!(
                "event {event} to {path} is delivered, and nothing answered so"
            ));
        }
    }
    found
}

/// What was committed for sure is there.
pub fn kept(evidence: &Evidence) -> Vec<String> {
    let there: HashSet<&str> = evidence.events.values().map(String::as_str).collect();
    let lost = evidence.emitted.iter().filter_map(|e| match e.ending {
        Ending::Committed(at) if !there.contains(e.body.as_str()) => Some((e, at)),
        _ => None,
    });
    lost.map(|(e, at)| format!("event {:?}, committed at {at:.3}, is not there", e.id))
        .collect()
}

/// What was rolled back is nowhere: not in the database, not at the receiver.
pub fn rolled_back(evidence: &Evidence) -> Vec<String> {
    let undone: Vec<&Emitted> = evidence
        .emitted
        .iter()
        .filter(|e| e.ending == Ending::RolledBack)
        .collect();
    let bodies: HashSet<&[u8]> = undone.iter().map(|e| e.body.as_bytes()).collect();
    let ids: HashSet<Uuid> = undone.iter().filter_map(|e| e.id).collect();
    let mut found = Vec::new();
    for request in &evidence.requests {
        if bodies.contains(&request.body[..]) || request.event().is_some_and(|id| ids.contains(&id))
        {
            found.push(format!("{request} is of a rolled-back transaction"));
        }
    }
    for (id, body) in &evidence.events {
        if bodies.contains(body.as_bytes()) || ids.contains(id) {
            found.push(format!(
                "event {id} of a rolled-back transaction is in the database"
            ));
        }
    }
    found
}
