//! Rules about what was in the requests.

use std::collections::{HashMap, HashSet};

use super::evidence::Evidence;
use super::signature::is_right;

/// The body of every request is that of its event, byte for byte.
pub fn bytes(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    for request in &evidence.requests {
        match request.event().and_then(|id| evidence.events.get(&id)) {
            Some(body) if body.as_bytes() == request.body => {}
            Some(_) => found.push(format!("{request} has other bytes than its event")),
            None => found.push(format!("{request} has no event")),
        }
    }
    found
}

/// The signature is over the bytes that came, with a secret of the endpoint.
pub fn signed(evidence: &Evidence) -> Vec<String> {
    let secrets: HashMap<&str, &HashSet<String>> = evidence
        .endpoints
        .iter()
        .map(|e| (e.path.as_str(), &e.secrets))
        .collect();
    let wrong = evidence.requests.iter().filter(|request| {
        let secrets = secrets.get(request.path.as_str());
        !secrets.is_some_and(|all| all.iter().any(|secret| is_right(request, secret)))
    });
    wrong
        .map(|r| format!("{r} is signed {:?}", r.signature))
        .collect()
}
