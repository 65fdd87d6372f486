//! What is judged: what was asked for, what the database says, what the receiver saw. Times are seconds since the
//! start of the run.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

/// An endpoint as it stands in the database, and what it was created with. A path has one endpoint.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub id: i64,
    pub path: String,
    pub tenant: String,
    pub patterns: Vec<String>,
    pub rate: f64,
    pub burst: f64,
    pub concurrency: usize,
    /// When the call that created it had returned; none when its answer was lost.
    pub created: Option<f64>,
    /// When the call that deleted it began.
    pub deleted: Option<f64>,
    /// Every secret it ever had.
    pub secrets: HashSet<String>,
}

impl Endpoint {
    /// Whether it subscribes to an event type of a tenant.
    pub fn wants(&self, tenant: &str, event_type: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => pattern == event_type,
        };
        self.tenant == tenant && self.patterns.iter().any(matches)
    }
}

/// How the transaction of an event ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// COMMIT was confirmed; it was sent then.
    Committed(f64),
    RolledBack,
    /// The answer to COMMIT was lost, or the commit was an asynchronous one: the table `events` decides.
    Unknown,
}

/// An event that an application emitted.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// None when the answer to the emit was lost.
    pub id: Option<Uuid>,
    pub tenant: String,
    pub event_type: String,
    /// Unlike any other's.
    pub body: String,
    pub ending: Ending,
}

/// A row of the view `deliveries`.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub status: String,
    pub reason: Option<String>,
    /// By the clock of the database, which runs on this machine.
    pub finished: Option<f64>,
}

/// A request that the receiver got.
#[derive(Clone, Debug)]
pub struct Seen {
    pub path: String,
    pub id: String,
    pub timestamp: String,
    pub signature: String,
    pub body: Vec<u8>,
    pub arrived: f64,
    /// None while open.
    pub finished: Option<f64>,
    /// Whether the sender may have read a 2xx.
    pub accepted: bool,
}

impl Seen {
    pub fn event(&self) -> Option<Uuid> {
        self.id.parse().ok()
    }

    fn name(&self) -> String {
        format!("{} to {} at {:.3}", self.id, self.path, self.arrived)
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// A time in which something held.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub from: f64,
    pub to: f64,
}

impl Span {
    pub fn overlaps(self, from: f64, to: f64) -> bool {
        self.from <= to && from <= self.to
    }
}

/// A worker was frozen.
#[derive(Clone, Copy, Debug)]
pub struct Freeze {
    /// From before SIGSTOP to after SIGCONT.
    pub span: Span,
    /// Its last beat before it froze. While connections are cut and the server is away a worker cannot beat, so this
    /// may be most of a lease before the freeze.
    pub beat: f64,
}

/// An operator stopped an endpoint: from when the call had returned until the call that ended it began.
#[derive(Clone, Debug)]
pub struct Stopped {
    pub path: String,
    pub how: &'static str,
    pub span: Span,
}

/// Everything there is to judge by.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub endpoints: Vec<Endpoint>,
    pub emitted: Vec<Emitted>,
    /// The table `events`, and the body.
    pub events: HashMap<Uuid, String>,
    pub deliveries: HashMap<(Uuid, i64), Delivery>,
    /// Deliveries that an operator replayed, or may have.
    pub replayed: HashSet<(Uuid, i64)>,
    /// In order of arrival.
    pub requests: Vec<Seen>,
    /// Of any worker.
    pub freezes: Vec<Freeze>,
    pub stopped: Vec<Stopped>,
    /// Workers that ended as they should not, and why.
    pub workers: Vec<String>,
    /// Errors in the server's log that nobody provoked.
    pub server_errors: Vec<String>,
    pub lease: f64,
    pub request_timeout: f64,
}
