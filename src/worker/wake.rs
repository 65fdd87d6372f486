//! Waking: LISTEN, with polling underneath.
//!
//! Notifications are hints. After every (re)connect the order is LISTEN first, a full look second, so nothing
//! committed in between is missed; with notifications off, the poll interval finds everything.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;

use super::engine::Event;
use crate::connect::Database;

/// The one channel.
const CHANNEL: &str = "postrider";

/// Listens for as long as the process lives, and tells the engine what it hears.
pub(super) async fn listen(database: Database, events: UnboundedSender<Event>) {
    let mut delay = Duration::from_millis(100);
    loop {
        let connected = Instant::now();
        match database.connect_listening().await {
            Ok((client, mut hints)) => {
                match client.batch_execute(&format!("listen {CHANNEL}")).await {
                    Ok(()) => {
                        if events.send(Event::Listening(true)).is_err() {
                            return;
                        }
                        while let Some(hint) = hints.recv().await {
                            if events.send(Event::Hint(hint.payload().to_owned())).is_err() {
                                return;
                            }
                        }
                        tracing::warn!(
                            "the listening connection was lost; polling until it is back"
                        );
                    }
                    Err(error) => tracing::warn!(%error, "LISTEN failed; polling"),
                }
            }
            Err(error) => tracing::warn!(%error, "no connection to listen on; polling"),
        }
        if events.send(Event::Listening(false)).is_err() {
            return;
        }
        if connected.elapsed() > Duration::from_secs(10) {
            delay = Duration::from_millis(100);
        }
        tokio::time::sleep(delay.mul_f64(rand::random_range(0.5..1.5))).await;
        delay = (delay * 2).min(Duration::from_secs(5));
    }
}

/// When to look for work again without being told: soon after there was a sign of it, then ever later, up
/// to the poll interval. Whoever lost the notify gate may commit a moment after the notification.
#[derive(Debug)]
pub(super) struct LookAgain {
    step: Duration,
    poll_interval: Duration,
    at: Instant,
}

impl LookAgain {
    const FIRST: Duration = Duration::from_millis(10);

    pub(super) fn new(poll_interval: Duration, now: Instant) -> Self {
        Self {
            step: Self::FIRST,
            poll_interval,
            at: now,
        }
    }

    /// There was a sign of work: start over from the shortest step.
    pub(super) fn soon(&mut self, now: Instant) {
        self.step = Self::FIRST.min(self.poll_interval);
        self.at = self.at.min(now + self.step);
    }

    /// Somebody else was looking: look again one step from now, without starting over.
    pub(super) fn again(&mut self, now: Instant) {
        self.at = self.at.min(now + self.step);
    }

    /// A look was begun: the next is one step away, and the step doubles.
    pub(super) fn looked(&mut self, now: Instant) {
        self.at = now + self.step;
        self.step = (self.step * 2).min(self.poll_interval);
    }

    pub(super) fn at(&self) -> Instant {
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_apart_up_to_the_poll_interval() {
        let now = Instant::now();
        let poll = Duration::from_millis(100);
        let mut look = LookAgain::new(poll, now);
        let mut gaps = Vec::new();
        for _ in 0..6 {
            look.looked(now);
            gaps.push(look.at().duration_since(now).as_millis());
        }
        assert_eq!(gaps, [10, 20, 40, 80, 100, 100]);
        look.soon(now);
        assert_eq!(look.at().duration_since(now).as_millis(), 10);
    }
}
