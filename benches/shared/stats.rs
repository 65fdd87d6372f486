//! Percentiles.

use std::time::Duration;

/// Latencies, to be asked for percentiles.
pub struct Sorted(Vec<Duration>);

impl From<Vec<Duration>> for Sorted {
    fn from(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }
}

impl Sorted {
    /// The value that this share of all is not above, in milliseconds; not a number if there are none.
    pub fn ms(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        // Nearest rank.
        let rank = (share * self.0.len() as f64).ceil() as usize;
        let at = rank.saturating_sub(1).min(last);
        self.0.get(at).map_or(f64::NAN, |d| d.as_secs_f64() * 1e3)
    }
}

/// Microseconds per piece.
pub fn us_each(total: Duration, pieces: u64) -> f64 {
    total.as_secs_f64() * 1e6 / pieces.max(1) as f64
}

/// Pieces per second.
pub fn rate(pieces: u64, took: Duration) -> f64 {
    pieces as f64 / took.as_secs_f64().max(1e-9)
}
