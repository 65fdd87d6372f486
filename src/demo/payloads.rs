//! The real payloads: 329 GitHub webhooks, emitted as they stand in `demo/github-events.jsonl`.

use std::borrow::Cow;
use std::time::Instant;

use tokio_postgres::Client;

use super::cast::GITHUB;
use super::show::{Show, duration};
use super::{Emitted, Error, sql};

const EVENTS: &str = include_str!("../../demo/github-events.jsonl");

/// The events, type and payload.
pub fn events() -> Result<Vec<(&'static str, &'static str)>, Error> {
    let read = |line: &'static str| {
        let (event_type, payload) = line
            .strip_prefix(r#"{"type":""#)?
            .split_once(r#"","payload":"#)?;
        Some((event_type, payload.strip_suffix('}')?))
    };
    let lines = EVENTS.lines().enumerate();
    lines
        .map(|(n, line)| read(line).ok_or(Error::Data(n + 1)))
        .collect()
}

/// Emits them, a transaction each.
pub async fn emit(client: &Client, show: Show) -> Result<Vec<Emitted>, Error> {
    let started = Instant::now();
    let mut emitted = Vec::new();
    for (event_type, payload) in events()? {
        emitted.push(sql::emit(client, GITHUB, event_type, Cow::Borrowed(payload)).await?);
    }
    show.say(format_args!(
        "github   {} events emitted in {}, a transaction each",
        emitted.len(),
        duration(started.elapsed())
    ));
    Ok(emitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_each_payload_is_json_and_all_there() {
        let events = events().unwrap();
        assert_eq!(events.len(), 329);
        for ((event_type, payload), line) in events.iter().zip(EVENTS.lines()) {
            let whole: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(whole["type"], *event_type);
            assert_eq!(
                whole["payload"],
                serde_json::from_str::<serde_json::Value>(payload).unwrap()
            );
        }
    }
}
