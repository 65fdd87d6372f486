//! Waking: LISTEN, with polling underneath.
//!
//! Notifications are hints. After every (re)connect the order is LISTEN first, a full look second, so nothing
//! committed in between is missed; with notifications off, the poll interval finds everything.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_postgres::Notification;

use super::engine::Event;
use crate::connect::Database;

/// The one channel.
const CHANNEL: &str = "postrider";
/// How long a notification may take before the connection counts as one that hears none.
const DEAF_LIMIT: Duration = Duration::from_secs(5);
/// How long after that LISTEN is tried anew.
const DEAF_RETRY: Duration = Duration::from_secs(60);

/// Listens for as long as the process lives, and tells the engine what it hears.
pub(super) async fn listen(database: Database, events: UnboundedSender<Event>) {
    let mut delay = Duration::from_millis(100);
    loop {
        let connected = Instant::now();
        match database.connect_listening().await {
            Ok((client, mut hints)) => {
                match client.batch_execute(&format!("listen {CHANNEL}")).await {
                    Ok(()) if !hears(&database, &mut hints, &events).await => {
                        tracing::warn!(
                            database = database.target(),
                            "polls only: notifications do not come through this connection, as behind a \
                             transaction-pooling proxy such as PgBouncer; give a direct one as --listen-url"
                        );
                        if events.send(Event::Listening(false)).is_err() {
                            return;
                        }
                        drop((client, hints));
                        tokio::time::sleep(DEAF_RETRY).await;
                        continue;
                    }
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

/// Whether a notification of another session arrives here within the limit. Real hints that come meanwhile are
/// passed on.
///
/// The notification must come while this session is idle: a proxy that pools transactions passes on what comes
/// within one, so a session's own notification would prove nothing. The payload is no worker's id, so it wakes
/// nobody.
async fn hears(
    database: &Database,
    hints: &mut UnboundedReceiver<Notification>,
    events: &UnboundedSender<Event>,
) -> bool {
    let Ok(other) = database.connect().await else {
        return true; // Not a matter of notifications: the connection's own end will tell.
    };
    let token = uuid::Uuid::new_v4().to_string();
    if let Err(error) = other
        .batch_execute(&format!("notify {CHANNEL}, '{token}'"))
        .await
    {
        tracing::debug!(%error, "LISTEN could not be tried out");
        return true;
    }
    let heard = async {
        while let Some(hint) = hints.recv().await {
            if hint.payload() == token {
                break;
            }
            let _ = events.send(Event::Hint(hint.payload().to_owned()));
        }
        // Also when the connection ended: that is found out next, and is no deafness.
        true
    };
    tokio::time::timeout(DEAF_LIMIT, heard)
        .await
        .unwrap_or(false)
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
