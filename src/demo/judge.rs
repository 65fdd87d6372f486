//! What there is to judge by, and the verdicts.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::Emitted;
use super::cast::{Endpoint, Role};
use super::receiver::Seen;
use super::sql::Logged;

/// Everything there is to judge by.
pub struct Evidence<'a> {
    /// Who took part.
    pub endpoints: &'a [Endpoint],
    /// What was emitted, by id.
    pub emitted: HashMap<Uuid, &'a Emitted>,
    /// What the receiver saw, in the order of arrival.
    pub seen: Vec<Seen>,
    /// Endpoint, status and number of the view `deliveries`.
    pub outcomes: Vec<(i64, String, i64)>,
    /// The table `attempts`.
    pub attempts: Vec<Logged>,
}

impl<'a> Evidence<'a> {
    /// The requests to one endpoint.
    pub fn at(&'a self, endpoint: &'a Endpoint) -> impl Iterator<Item = &'a Seen> {
        let name = endpoint.part.name;
        self.seen.iter().filter(move |s| s.endpoint == name)
    }

    /// The endpoints with a role.
    pub fn with(&'a self, role: Role) -> impl Iterator<Item = &'a Endpoint> {
        self.endpoints.iter().filter(move |e| e.part.role == role)
    }

    /// The events that an endpoint subscribed to.
    pub fn wanted(&self, endpoint: &Endpoint) -> HashSet<Uuid> {
        let wants = |e: &&&Emitted| endpoint.part.wants(e.tenant, e.event_type);
        self.emitted.values().filter(wants).map(|e| e.id).collect()
    }
}

/// The verdicts.
#[derive(Debug, Default)]
pub struct Checks {
    broken: usize,
    lines: Vec<String>,
}

impl Checks {
    /// Notes one; `found` says what was looked at, or what was wrong.
    pub fn check(&mut self, held: bool, what: &str, found: impl std::fmt::Display) {
        self.broken += usize::from(!held);
        let mark = if held { '✓' } else { '✗' };
        self.lines.push(format!("  {mark} {what}: {found}"));
    }

    /// One where each of many must be right: names the first that is not.
    pub fn all(&mut self, what: &str, wrong: &[String], right: impl std::fmt::Display) {
        match wrong {
            [] => self.check(true, what, right),
            [first, ..] => self.check(false, what, format_args!("{} wrong; {first}", wrong.len())),
        }
    }

    /// What was noted since the last call, a line each.
    pub fn lines(&mut self) -> String {
        std::mem::take(&mut self.lines).join("\n")
    }

    /// How many did not hold.
    #[must_use]
    pub fn broken(&self) -> usize {
        self.broken
    }
}
