//! Smaller runs, to see that a bench works: `BENCH_SCALE=0.1`. Such figures are not judged by anybody.

use std::time::Duration;

use super::table;

const VARIABLE: &str = "BENCH_SCALE";

/// 1, or less if asked for.
pub fn factor() -> f64 {
    let asked = std::env::var(VARIABLE).ok().and_then(|v| v.parse().ok());
    asked.unwrap_or(1.0_f64).clamp(0.001, 1.0)
}

/// This many, or its share.
pub fn count(full: u32) -> u32 {
    ((f64::from(full) * factor()).round() as u32).max(1)
}

/// This long, or its share.
pub fn time(full: Duration) -> Duration {
    full.mul_f64(factor())
}

/// Says so where sizes are not the full ones.
pub fn print() {
    if factor() < 1.0 {
        table::line(format_args!(
            "sizes and times are {} of the full ones ({VARIABLE}): these figures prove nothing",
            factor()
        ));
    }
}
