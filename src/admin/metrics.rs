//! Metrics. No endpoint id or URL is a label: a view serves per-endpoint numbers.

use std::{
    fmt,
    sync::atomic::{AtomicI64, AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::{Registry, Unit},
};

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    call: &'static str,
}

#[derive(Debug, Clone, Hash, PartialEq, Eq, EncodeLabelSet)]
struct EndpointState {
    state: &'static str,
}

/// A family of this has one metric at most, which can be taken away again.
type Unlabelled = [(&'static str, &'static str); 0];

/// The metrics of one worker.
pub struct Metrics {
    registry: Registry,
    attempts: Family<Outcome, Counter>,
    duration: Histogram,
    lag: Histogram,
    in_flight: Gauge,
    owned: Gauge,
    call_duration: Family<Call, Histogram, fn() -> Histogram>,
    call_errors: Family<Call, Counter>,
    claimed: Counter,
    leases_lost: Counter,
    history_lost: Counter,
    fanned_out_events: Counter,
    fanned_out_deliveries: Counter,
    pending: Family<Unlabelled, Gauge>,
    oldest_due: Family<Unlabelled, Gauge<f64, AtomicU64>>,
    endpoints: Family<EndpointState, Gauge<i64, AtomicI64>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn request_buckets() -> Histogram {
    Histogram::new([
        0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0,
    ])
}

fn lag_buckets() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 21600.0,
    ])
}

fn call_buckets() -> Histogram {
    Histogram::new([
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0,
    ])
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("postrider");
        let metrics = Self {
            registry: Registry::default(),
            attempts: Family::default(),
            duration: request_buckets(),
            lag: lag_buckets(),
            in_flight: Gauge::default(),
            owned: Gauge::default(),
            call_duration: Family::new_with_constructor(call_buckets),
            call_errors: Family::default(),
            claimed: Counter::default(),
            leases_lost: Counter::default(),
            history_lost: Counter::default(),
            fanned_out_events: Counter::default(),
            fanned_out_deliveries: Counter::default(),
            pending: Family::default(),
            oldest_due: Family::default(),
            endpoints: Family::default(),
        };
        let m = &metrics;
        let seconds = || Unit::Seconds;
        registry.register(
            "delivery_attempts",
            "Requests by what came of them",
            m.attempts.clone(),
        );
        registry.register_with_unit(
            "delivery_duration",
            "From the slot to the end of the answer",
            seconds(),
            m.duration.clone(),
        );
        registry.register_with_unit(
            "delivery_lag",
            "From due to the start of the request",
            seconds(),
            m.lag.clone(),
        );
        registry.register(
            "inflight_requests",
            "Requests open now",
            m.in_flight.clone(),
        );
        registry.register(
            "owned_endpoints",
            "Endpoints this worker owns",
            m.owned.clone(),
        );
        registry.register_with_unit(
            "db_call_duration",
            "Calls to the database",
            seconds(),
            m.call_duration.clone(),
        );
        registry.register(
            "db_errors",
            "Calls to the database that failed",
            m.call_errors.clone(),
        );
        registry.register("claimed_endpoints", "Endpoints claimed", m.claimed.clone());
        registry.register("leases_lost", "Leases lost", m.leases_lost.clone());
        registry.register(
            "history_lost",
            "Reports whose history could not be written",
            m.history_lost.clone(),
        );
        registry.register(
            "fanned_out_events",
            "Events fanned out",
            m.fanned_out_events.clone(),
        );
        registry.register(
            "fanned_out_deliveries",
            "Deliveries made by fan-out",
            m.fanned_out_deliveries.clone(),
        );
        registry.register(
            "deliveries_pending",
            "Deliveries owed, over the installation",
            m.pending.clone(),
        );
        registry.register_with_unit(
            "oldest_due_age",
            "Age of the oldest delivery that is due, over the installation",
            seconds(),
            m.oldest_due.clone(),
        );
        registry.register(
            "endpoints",
            "Endpoints by state, over the installation",
            m.endpoints.clone(),
        );
        registry.register(
            "build",
            "This program",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        Self {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    /// A request ended; `lag` is from due to its start.
    pub fn attempt(&self, outcome: &'static str, duration: Duration, lag: Duration) {
        self.attempts.get_or_create(&Outcome { outcome }).inc();
        self.duration.observe(duration.as_secs_f64());
        self.lag.observe(lag.as_secs_f64());
    }

    /// Requests open now.
    pub fn in_flight(&self, requests: i64) {
        self.in_flight.set(requests);
    }

    /// Endpoints owned now.
    pub fn owned_endpoints(&self, endpoints: i64) {
        self.owned.set(endpoints);
    }

    /// A call to the database returned.
    pub fn db_call(&self, call: &'static str, took: Duration, ok: bool) {
        let call = Call { call };
        self.call_duration
            .get_or_create(&call)
            .observe(took.as_secs_f64());
        if !ok {
            self.call_errors.get_or_create(&call).inc();
        }
    }

    /// Endpoints were claimed.
    pub fn claimed(&self, endpoints: usize) {
        self.claimed.inc_by(endpoints as u64);
    }

    /// The lease was lost.
    pub fn lease_lost(&self) {
        self.leases_lost.inc();
    }

    /// History could not be written.
    pub fn history_lost(&self) {
        self.history_lost.inc();
    }

    /// Events were fanned out.
    pub fn fan_out(&self, events: i32, deliveries: i32) {
        self.fanned_out_events
            .inc_by(u64::try_from(events).unwrap_or(0));
        self.fanned_out_deliveries
            .inc_by(u64::try_from(deliveries).unwrap_or(0));
    }

    /// What the whole installation looks like; these metrics are absent while it is not known.
    pub fn installation(&self, depth: Option<&crate::inspect::Depth>) {
        let Some(depth) = depth else {
            self.pending.clear();
            self.oldest_due.clear();
            self.endpoints.clear();
            return;
        };
        let oldest = depth.oldest_due_age.as_secs_f64();
        self.pending.get_or_create(&[]).set(depth.due + depth.later);
        self.oldest_due.get_or_create(&[]).set(oldest);
        for (state, count) in [
            ("active", depth.active),
            ("paused", depth.paused),
            ("disabled", depth.disabled),
        ] {
            self.endpoints
                .get_or_create(&EndpointState { state })
                .set(count);
        }
    }

    /// All of it, in the Prometheus text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
