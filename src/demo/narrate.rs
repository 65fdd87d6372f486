//! Tells what the receiver sees while it sees it: a line per attempt of the specification's endpoint,
//! and once a second how many requests the others had.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{MissedTickBehavior, interval};

use super::cast::{BACKOFF_S, Endpoint, Role};
use super::receiver::{RETRY_AFTER_S, Seen};
use super::show::Show;

/// Turns what the receiver tells into lines.
#[derive(Debug)]
pub struct Narrator {
    told: UnboundedReceiver<Seen>,
    show: Show,
    spec: String,
    /// Name, requests so far, requests expected.
    counts: Vec<(&'static str, usize, usize)>,
    last: String,
}

impl Narrator {
    /// `expected`: how many requests each endpoint of the real payloads will get.
    #[must_use]
    pub fn new(
        told: UnboundedReceiver<Seen>,
        show: Show,
        endpoints: &[Endpoint],
        expected: &HashMap<i64, usize>,
    ) -> Self {
        let (spec, others): (Vec<_>, Vec<_>) =
            endpoints.iter().partition(|e| e.part.role == Role::Spec);
        let count = |e: &&Endpoint| {
            let expected = expected.get(&e.id).copied().unwrap_or_default();
            (e.part.name, 0, expected)
        };
        Self {
            told,
            show,
            spec: spec.first().map_or("", |e| e.part.name).to_owned(),
            counts: others.iter().map(count).collect(),
            last: String::new(),
        }
    }

    /// Runs until dropped, or until the receiver is gone.
    pub async fn run(&mut self) {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        second.tick().await;
        loop {
            tokio::select! {
                seen = self.told.recv() => match seen {
                    Some(seen) => self.take(&seen),
                    None => break,
                },
                _ = second.tick() => self.progress(),
            }
        }
    }

    /// Tells what is left to tell.
    pub fn finish(&mut self) {
        while let Ok(seen) = self.told.try_recv() {
            self.take(&seen);
        }
        self.progress();
    }

    fn take(&mut self, seen: &Seen) {
        if seen.endpoint == self.spec {
            let note = match seen.status {
                429 => format!(
                    "Retry-After: {RETRY_AFTER_S}: the whole endpoint must pause {RETRY_AFTER_S} s"
                ),
                500 => format!("to be retried within {BACKOFF_S} s, full jitter"),
                _ => "delivered".to_owned(),
            };
            self.show.attempt(seen, &note);
        } else if let Some(count) = self.counts.iter_mut().find(|c| c.0 == seen.endpoint) {
            count.1 += 1;
        }
    }

    fn progress(&mut self) {
        if self.counts.iter().all(|c| c.1 == 0) {
            return;
        }
        let one = |(name, got, of): &(&str, usize, usize)| format!("{name} {got}/{of}");
        let text = self.counts.iter().map(one).collect::<Vec<_>>().join(" · ");
        if text != self.last {
            self.show.say(format_args!("github   {text}"));
            self.last = text;
        }
    }
}
