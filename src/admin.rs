//! Metrics and health (being written).
#![allow(missing_docs)]
use std::time::Duration;
pub struct Telemetry {
    pub metrics: Metrics,
    pub health: Health,
}
impl Telemetry {
    pub fn new() -> Self {
        Telemetry {
            metrics: Metrics,
            health: Health,
        }
    }
}
pub struct Metrics;
pub struct Health;
impl Health {
    pub fn turned(&self) {}
    pub fn claimed_ok(&self) {}
    pub fn claim_failed(&self) {}
    pub fn reported_ok(&self) {}
    pub fn report_failed(&self) {}
    pub fn listening(&self, _: bool) {}
}
impl Metrics {
    pub fn attempt(&self, _: &'static str, _: Duration, _: Duration) {}
    pub fn in_flight(&self, _: i64) {}
    pub fn owned_endpoints(&self, _: i64) {}
    pub fn db_call(&self, _: &'static str, _: Duration, _: bool) {}
    pub fn batch(&self, _: &'static str, _: usize) {}
    pub fn lease_lost(&self) {}
    pub fn history_lost(&self) {}
    pub fn fan_out(&self, _: i32, _: i32) {}
}
