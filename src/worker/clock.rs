//! The database's clock, as a worker reckons it between two answers.

use std::time::Duration;

/// The database's time at a moment of this machine's uptime, suspend included.
#[derive(Debug, Clone, Copy)]
pub(super) struct DatabaseClock {
    us: i64,
    at: Duration,
}

impl DatabaseClock {
    /// From the first answer: the database read `us` somewhere between question and answer.
    pub(super) fn first(us: i64, sent: Duration, received: Duration) -> Self {
        let half = received.saturating_sub(sent) / 2;
        Self {
            us: us.saturating_add(micros(half)),
            at: received,
        }
    }

    /// Takes a further answer. By now the clock shows at least `us`, and at most that and the time the answer
    /// took; so a slow answer moves a good reckoning not at all, and a clock that was set is followed.
    pub(super) fn hear(&mut self, us: i64, sent: Duration, received: Duration) {
        let most = us.saturating_add(micros(received.saturating_sub(sent)));
        self.us = self.at(received).clamp(us, most);
        self.at = received;
    }

    /// Microseconds since 1970 at `now`.
    pub(super) fn at(&self, now: Duration) -> i64 {
        self.us.saturating_add(micros(now.saturating_sub(self.at)))
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const START: i64 = 1_700_000_000 * SECOND;

    /// A worker whose answers take so long on their way to and from the database; how far it is off at the end.
    fn off(ways: &[(u64, u64)], set_by: i64) -> i64 {
        let begin = Duration::from_secs(9);
        let mut now = begin;
        let mut clock: Option<DatabaseClock> = None;
        let truth = |at: Duration| START + micros(at - begin);
        for (there, back) in ways {
            let sent = now;
            let read = sent + Duration::from_millis(*there);
            let received = read + Duration::from_millis(*back);
            match &mut clock {
                None => clock = Some(DatabaseClock::first(truth(read), sent, received)),
                Some(clock) => clock.hear(truth(read) + set_by, sent, received),
            }
            now = received + Duration::from_secs(5);
        }
        clock.unwrap().at(now) - truth(now) - set_by
    }

    #[test]
    fn one_quick_answer_is_enough_however_slow_the_others() {
        for slow in [(0, 5000), (5000, 0), (2500, 2500)] {
            for ways in [
                [(3, 3), slow, slow],
                [slow, (3, 3), slow],
                [slow, slow, (3, 3)],
            ] {
                let off = off(&ways, 0);
                assert!(off.abs() <= 6_000, "{ways:?}: {off} us");
            }
        }
    }

    #[test]
    fn slow_answers_alone_cost_half_their_time() {
        for slow in [(0, 4000), (4000, 0), (1000, 3000)] {
            assert!(off(&[slow; 3], 0).abs() <= 2 * SECOND);
        }
    }

    #[test]
    fn a_clock_that_is_set_is_followed() {
        for by in [-3600 * SECOND, -5 * SECOND, 5 * SECOND, 86_400 * SECOND] {
            assert!(off(&[(3, 3), (3, 3)], by).abs() <= 6_000);
            assert!(off(&[(3, 3), (0, 2000)], by).abs() <= 2 * SECOND);
        }
    }

    #[test]
    fn absurd_clocks_do_not_panic() {
        let now = Duration::from_secs(9);
        let mut clock = DatabaseClock::first(i64::MAX, now, now + Duration::from_secs(9));
        clock.hear(i64::MIN, now, now);
        clock.hear(i64::MAX, now, now + Duration::from_secs(1));
        assert_eq!(clock.at(now + Duration::from_secs(1)), i64::MAX);
    }
}
