//! What is seen from outside: `/metrics` (Prometheus text), `/livez`, `/readyz`.

mod health;
mod metrics;
mod serve;

pub use health::Health;
pub use metrics::Metrics;
pub use serve::serve;

/// What a worker tells about itself.
#[derive(Debug, Default)]
pub struct Telemetry {
    /// Counters and gauges.
    pub metrics: Metrics,
    /// Whether it works.
    pub health: Health,
}

impl Telemetry {
    /// Nothing counted yet; not ready.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}
