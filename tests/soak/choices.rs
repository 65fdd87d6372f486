//! Random choices that a seed replays: each actor has its own, so that one's timing does not change another's.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use sha2::{Digest, Sha256};

/// The choices of one actor.
pub struct Choices(StdRng);

impl Choices {
    /// Those of `who` in the run of this seed.
    pub fn of(seed: u64, who: &str) -> Self {
        let digest = Sha256::new()
            .chain_update(seed.to_be_bytes())
            .chain_update(who)
            .finalize();
        Self(StdRng::from_seed(digest.into()))
    }

    /// True in this share of all cases.
    pub fn chance(&mut self, share: f64) -> bool {
        self.0.random_bool(share)
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..=most)
    }

    /// A duration, in milliseconds.
    pub fn time(&mut self, least_ms: u64, most_ms: u64) -> Duration {
        Duration::from_millis(self.between(least_ms, most_ms))
    }

    /// One of several; none of none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        (!all.is_empty()).then(|| &all[self.0.random_range(0..all.len())])
    }

    /// One of several that come as often as their weights say.
    pub fn weighted<T: Copy>(&mut self, all: &[(u64, T)]) -> T {
        let sum: u64 = all.iter().map(|(weight, _)| weight).sum();
        let mut at = self.0.random_range(0..sum);
        for (weight, one) in all {
            if at < *weight {
                return *one;
            }
            at -= weight;
        }
        all[all.len() - 1].1
    }
}
