//! Pacing: the generic cell rate algorithm, per endpoint, by the monotonic clock.
//!
//! One number says it all: the theoretical arrival time (TAT) of the next request if requests came exactly
//! at the rate. A request conforms while the TAT is no further ahead of now than `burst - 1` intervals. So in
//! any window of T seconds at most `burst + rate·T` requests leave. (ITU-T I.371, annex A.)

use std::time::{Duration, Instant};

/// Longest interval between two requests that is told apart from "never".
const LONGEST_INTERVAL: Duration = Duration::from_secs(31_536_000);

/// The pace of one endpoint.
#[derive(Debug, Clone)]
pub struct Pace {
    interval: Duration,
    burst: u32,
    tat: Instant,
}

impl Pace {
    /// A pace of `rate` requests per second with bursts of `burst`, whose TAT stands `ahead` of now. A
    /// stored `ahead` of more than a full burst is cut to that: an empty bucket.
    #[must_use]
    pub fn new(rate: f64, burst: u32, ahead: Duration, now: Instant) -> Self {
        let mut pace = Self {
            interval: interval(rate),
            burst: burst.max(1),
            tat: now,
        };
        pace.tat = now + ahead.min(pace.full());
        pace
    }

    /// Takes new settings; what was spent stays spent.
    pub fn set(&mut self, rate: f64, burst: u32, now: Instant) {
        self.interval = interval(rate);
        self.burst = burst.max(1);
        self.tat = self.tat.min(now + self.full());
    }

    /// Takes a token, or says when there will be one.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        let earliest = self.next(now);
        if earliest > now {
            return Err(earliest);
        }
        self.tat = self.tat.max(now) + self.interval;
        Ok(())
    }

    /// When the next token is there: now, or later.
    #[must_use]
    pub fn next(&self, now: Instant) -> Instant {
        let tolerance = self.interval * (self.burst - 1);
        self.tat.checked_sub(tolerance).unwrap_or(now).max(now)
    }

    /// How far ahead of now the TAT stands, to be stored with a release.
    #[must_use]
    pub fn ahead(&self, now: Instant) -> Duration {
        self.tat.saturating_duration_since(now)
    }

    fn full(&self) -> Duration {
        self.interval * self.burst
    }
}

fn interval(rate: f64) -> Duration {
    Duration::try_from_secs_f64(1.0 / rate)
        .unwrap_or(LONGEST_INTERVAL)
        .min(LONGEST_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_then_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(10.0, 3, Duration::ZERO, start);
        for _ in 0..3 {
            assert_eq!(pace.take(start), Ok(()));
        }
        let next = start + Duration::from_millis(100);
        assert_eq!(pace.take(start), Err(next));
        assert_eq!(pace.take(next), Ok(()));
    }

    #[test]
    fn a_takeover_starts_empty_and_no_deeper() {
        let now = Instant::now();
        let year = Duration::from_secs(31_536_000);
        let mut pace = Pace::new(10.0, 5, year, now);
        assert_eq!(pace.take(now), Err(now + Duration::from_millis(100)));
    }

    #[test]
    fn odd_rates_do_not_panic() {
        let now = Instant::now();
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e300] {
            let mut pace = Pace::new(rate, 100_000, Duration::MAX, now);
            let _ = pace.take(now);
            pace.set(rate, 1, now);
        }
    }

    proptest! {
        #[test]
        fn no_window_exceeds_burst_plus_rate_times_length(
            rate in 0.5f64..200.0, burst in 1u32..20,
            gaps in proptest::collection::vec(0u64..300, 1..200),
        ) {
            let start = Instant::now();
            let mut pace = Pace::new(rate, burst, Duration::ZERO, start);
            let mut now = start;
            let mut sent = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                while pace.take(now).is_ok() {
                    sent.push(now);
                }
            }
            for (i, from) in sent.iter().enumerate() {
                for (j, to) in sent.iter().enumerate().skip(i) {
                    let window = to.duration_since(*from).as_secs_f64();
                    let most = f64::from(burst) + rate * window + 1e-6;
                    prop_assert!((j - i + 1) as f64 <= most, "{} in {window} s", j - i + 1);
                }
            }
        }
    }
}
