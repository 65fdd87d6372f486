//! Waking: LISTEN, with polling underneath.
//!
//! Notifications are hints. After every (re)connect the order is LISTEN first, a full look second, so nothing
//! committed in between is missed; with notifications off, the poll interval finds everything.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{timeout, timeout_at};
use tokio_postgres::Notification;

use super::engine::Event;
use crate::connect::Database;

/// The one channel.
const CHANNEL: &str = "postrider";
/// How long a notification may take before the connection counts as one that hears none.
const DEAF_LIMIT: Duration = Duration::from_secs(5);
/// How long after that LISTEN is tried anew, at first and at most.
const DEAF_RETRY: Duration = Duration::from_secs(5);
const DEAF_RETRY_MOST: Duration = Duration::from_secs(600);
/// How long after it could not be tried out it is tried out again.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Why listening ended.
enum End {
    /// The connection hears nothing.
    Deaf,
    /// It is gone, or could not be made.
    Lost,
    /// Nobody takes hints any more.
    Stopped,
}

/// Listens for as long as the process lives, and tells the engine what it hears. `calls` is where the engine's
/// calls go: what is notified there must be heard here.
pub(super) async fn listen(listening: Database, calls: Database, events: UnboundedSender<Event>) {
    let (mut delay, mut deaf) = (Duration::from_millis(100), DEAF_RETRY);
    loop {
        let connected = Instant::now();
        let end = listen_once(&listening, &calls, &events).await;
        if matches!(end, End::Stopped) || events.send(Event::Listening(false)).is_err() {
            return;
        }
        if matches!(end, End::Deaf) {
            tracing::warn!(
                database = listening.target(),
                "polls only: notifications do not come through this connection, as behind a \
                 transaction-pooling proxy such as PgBouncer, or come from another database; give a direct \
                 one as --listen-url"
            );
            tokio::time::sleep(deaf).await;
            deaf = (deaf * 2).min(DEAF_RETRY_MOST);
            continue;
        }
        if connected.elapsed() > Duration::from_secs(10) {
            (delay, deaf) = (Duration::from_millis(100), DEAF_RETRY);
        }
        tokio::time::sleep(delay.mul_f64(rand::random_range(0.5..1.5))).await;
        delay = (delay * 2).min(Duration::from_secs(5));
    }
}

async fn listen_once(
    listening: &Database,
    calls: &Database,
    events: &UnboundedSender<Event>,
) -> End {
    let (client, mut hints) = match listening.connect_listening().await {
        Ok(connected) => connected,
        Err(error) => {
            tracing::warn!(%error, "no connection to listen on; polling");
            return End::Lost;
        }
    };
    let listen = format!("listen {CHANNEL}");
    match timeout(DEAF_LIMIT, client.batch_execute(&listen)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "LISTEN failed; polling");
            return End::Lost;
        }
        Err(_) => {
            tracing::warn!("LISTEN was not answered within {DEAF_LIMIT:?}; polling");
            return End::Lost;
        }
    }
    loop {
        let heard = hears(calls, &mut hints, events).await;
        if heard == Some(false) {
            // A proxy keeps the session that LISTEN ran in, and would go on sending it what nobody reads.
            let _ = timeout(
                DEAF_LIMIT,
                client.batch_execute(&format!("unlisten {CHANNEL}")),
            )
            .await;
            return End::Deaf;
        }
        if events.send(Event::Listening(true)).is_err() {
            return End::Stopped;
        }
        // Unknown is taken for good, and found out later.
        let until = heard.is_none().then(|| Instant::now() + TRY_AGAIN);
        loop {
            let hint = match until {
                None => hints.recv().await,
                Some(until) => match timeout_at(until.into(), hints.recv()).await {
                    Ok(hint) => hint,
                    Err(_) => break,
                },
            };
            match hint {
                Some(hint) if events.send(Event::Hint(hint.payload().to_owned())).is_ok() => {}
                Some(_) => return End::Stopped,
                None => {
                    tracing::warn!("the listening connection was lost; polling until it is back");
                    return End::Lost;
                }
            }
        }
    }
}

/// Whether a notification that comes from where the engine's calls go arrives here within the limit; `None` when
/// that could not be tried out. Real hints that come meanwhile are passed on.
///
/// The notification must come from another session, while this one is idle: a proxy that pools transactions
/// passes on what comes within one. The payload is no worker's id, so it wakes nobody.
async fn hears(
    calls: &Database,
    hints: &mut UnboundedReceiver<Notification>,
    events: &UnboundedSender<Event>,
) -> Option<bool> {
    let token = uuid::Uuid::new_v4().to_string();
    let notify = async {
        let other = calls.connect().await.map_err(|error| error.to_string())?;
        let notify = format!("notify {CHANNEL}, '{token}'");
        let notify = other.batch_execute(&notify);
        notify
            .await
            .map_err(|error| crate::connect::explain(&error))
    };
    let heard = async {
        while let Some(hint) = hints.recv().await {
            if hint.payload() == token {
                return true;
            }
            let _ = events.send(Event::Hint(hint.payload().to_owned()));
        }
        // The connection ended: that is found out next, and is no deafness.
        true
    };
    let mut heard = std::pin::pin!(heard);
    tokio::select! {
        // It is heard before the answer to NOTIFY has come, as often as not.
        heard = &mut heard => return Some(heard),
        told = timeout(2 * DEAF_LIMIT, notify) => match told {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error, "whether notifications are heard could not be tried out");
                return None;
            }
            Err(_) => {
                tracing::warn!("whether notifications are heard could not be tried out: no answer");
                return None;
            }
        },
    }
    Some(timeout(DEAF_LIMIT, heard).await.unwrap_or(false))
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
