//! What goes to the SQL functions and what comes back.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use serde::Deserialize;
use uuid::Uuid;

/// A live worker and how often it has beaten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// The worker.
    pub worker: Uuid,
    /// Its beat counter.
    pub beat: i64,
}

/// What one call of `fan_out` did.
#[derive(Debug, Default)]
pub struct FanOut {
    /// Events that left the outbox.
    pub events: i32,
    /// Deliveries made.
    pub deliveries: i32,
    /// Whether the outbox holds more.
    pub more: bool,
    /// Whether another worker was at it.
    pub busy: bool,
    /// Endpoints of this worker that have work now.
    pub due: Vec<i64>,
    /// Whether endpoints that nobody owns have work, now or later.
    pub claimable: bool,
}

/// An endpoint taken.
#[derive(Debug, Clone, Copy)]
pub struct Claimed {
    /// The endpoint.
    pub endpoint_id: i64,
    /// How far ahead of now its pace stands.
    pub pace_ahead: Duration,
}

/// What one call of `claim_endpoints` took.
#[derive(Debug, Default)]
pub struct Claim {
    /// The endpoints, longest due first.
    pub endpoints: Vec<Claimed>,
    /// When the next unowned endpoint is due; `None` when none is.
    pub next_in: Option<Duration>,
}

/// An endpoint to fetch for.
#[derive(Debug, Clone, Copy)]
pub struct WantedRefill {
    /// The endpoint.
    pub endpoint_id: i64,
    /// How many deliveries at most; 0 asks for its settings only.
    pub limit: i32,
}

/// An endpoint's current settings and state.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Settings {
    /// Where requests go.
    pub url: String,
    /// Additional headers.
    pub headers: BTreeMap<String, String>,
    /// Signature style.
    pub signature: String,
    /// Valid secrets, newest first.
    pub secrets: Option<Vec<String>>,
    /// Requests per second.
    pub rate: f64,
    /// Requests at once after a quiet time.
    pub burst: u32,
    /// Open requests.
    pub concurrency: u32,
    /// After a pause by the ladder: one request at a time until one succeeds.
    pub probing: bool,
    /// Limit of lookup, TCP and TLS, in milliseconds.
    pub connect_timeout_ms: u64,
    /// Limit of the whole request, in milliseconds.
    pub request_timeout_ms: u64,
    /// Pause after a 429 that names no usable time, in milliseconds.
    pub pause_default_ms: u64,
    /// Shortest pause, in milliseconds.
    pub pause_min_ms: u64,
    /// Longest pause, in milliseconds.
    pub pause_max_ms: u64,
    /// Whether Retry-After on a 503 pauses too.
    pub pause_on_503: bool,
    /// Disabled or deleted.
    pub stopped: bool,
    /// How long it is paused yet, in milliseconds.
    pub paused_ms: Option<u64>,
    /// When the next delivery that is not yet due will be, in milliseconds.
    pub next_due_ms: Option<u64>,
    /// Deliveries found due, cut by the limit only.
    pub due: usize,
}

/// A delivery that is due.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The event, and the `Webhook-Id`.
    pub event_id: Uuid,
    /// 1 for the first sending; each replay counts up.
    pub run: i32,
    /// Which attempt of the run this would be, from 1.
    pub number: i32,
    /// The event type.
    pub event_type: String,
    /// The bytes to send.
    pub body: Bytes,
    /// Rest of its time to live.
    pub expires_in: Duration,
    /// How long it had been due when it was fetched.
    pub overdue: Duration,
    /// When it was fetched.
    pub fetched_at: std::time::Instant,
}

/// What one call of `fetch_deliveries` returned for one endpoint.
#[derive(Debug)]
pub struct Fetched {
    /// The endpoint.
    pub endpoint_id: i64,
    /// `None`: the worker does not own it any more. An error: settings that cannot be read.
    pub settings: Option<Result<Settings, String>>,
    /// Deliveries, oldest due first.
    pub deliveries: Vec<Delivery>,
}

/// One attempt to report.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Counts up in the worker; with the worker it names the attempt.
    pub seq: i64,
    /// The event.
    pub event_id: Uuid,
    /// The endpoint.
    pub endpoint_id: i64,
    /// The run.
    pub run: i32,
    /// The attempt's number in the run, from 1.
    pub number: i32,
    /// When the answer was complete, or given up.
    pub ended: std::time::Instant,
    /// From the slot to there.
    pub duration: Duration,
    /// Status of the answer.
    pub http_status: Option<u16>,
    /// Why there is none.
    pub error_code: Option<&'static str>,
    /// The same in words.
    pub error: Option<String>,
    /// How long the answer asked to wait.
    pub wait: Option<Duration>,
    /// Beginning of the answer's body.
    pub answer: Option<String>,
}

impl Attempt {
    /// Whether it was answered with a 2xx.
    #[must_use]
    pub fn is_delivered(&self) -> bool {
        matches!(self.http_status, Some(200..=299))
    }
}

/// What the owner of an endpoint must now do.
#[derive(Debug, Clone, Copy)]
pub struct Verdict {
    /// The endpoint.
    pub endpoint_id: i64,
    /// Whether the worker owns it.
    pub owned: bool,
    /// Disabled or deleted: no further request.
    pub stopped: bool,
    /// How long it is paused yet.
    pub paused: Duration,
    /// One request at a time until one succeeds.
    pub probing: bool,
    /// When the earliest delivery owed is due.
    pub next_due: Option<Duration>,
    /// Whether history could not be written.
    pub history_lost: bool,
    /// A transaction holds the endpoint, or a crash undid the making of a delivery: report all of the endpoint again.
    pub held: bool,
}
