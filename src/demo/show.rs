//! What goes on screen: plain lines, so that a pipe gets the same.

use std::io::Write;
use std::time::{Duration, Instant};

use super::receiver::Seen;

/// Prints a line; a reader that went away is no reason to stop.
pub fn line(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The screen, with the time since the start on each line.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    start: Instant,
}

impl Show {
    /// Starts the clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// A heading.
    pub fn heading(&self, text: &str) {
        line(format_args!("\n{text}"));
    }

    /// Something that happened now.
    pub fn say(&self, text: impl std::fmt::Display) {
        self.at(Instant::now(), text);
    }

    /// An answered request.
    pub fn attempt(&self, seen: &Seen, note: &str) {
        let text = format!(
            "{:<8} {}  attempt {}  → {}  {note}",
            seen.endpoint,
            short(seen.header("webhook-id")),
            seen.attempt(),
            seen.status,
        );
        self.at(seen.answered.unwrap_or(seen.arrived), text.trim_end());
    }

    fn at(&self, when: Instant, text: impl std::fmt::Display) {
        let time = when.saturating_duration_since(self.start);
        line(format_args!("{:>7.2} s  {text}", time.as_secs_f64()));
    }
}

impl Default for Show {
    fn default() -> Self {
        Self::new()
    }
}

/// The end of an id: the beginning of a version 7 uuid is the time, and the same for all.
#[must_use]
pub fn short(id: &str) -> String {
    let cut = id.char_indices().rev().nth(7).map_or(0, |(i, _)| i);
    format!("…{}", &id[cut..])
}

/// Seconds with two digits, or milliseconds.
#[must_use]
pub fn duration(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.2} s", time.as_secs_f64())
    }
}

/// A number with its noun: `1 event`, `2 events`.
#[must_use]
pub fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids() {
        assert_eq!(short("019a0000-0000-7000-8000-0123456789ab"), "…456789ab");
        assert_eq!(short("abc"), "…abc");
        assert_eq!(short(""), "…");
    }
}
