//! What is read of an answer: its status, how long it asks to be left alone, and the beginning of its body.

use std::time::{Duration, Instant, SystemTime};

use http_body_util::BodyExt;
use hyper::{
    body::Incoming,
    header::{HeaderValue, LOCATION},
};
use tokio::time::timeout_at;

use super::{Answer, ErrorCode, wait::wait_from_headers};

/// Most bytes of an answer's body that are read.
const MOST_READ: usize = 16 << 10;
/// Most characters of it that are kept.
const MOST_KEPT: usize = 500;
/// How long the body of a 429 is read: the pause must not wait for it.
const RATE_LIMITED_READ: Duration = Duration::from_millis(50);

/// The head decides. The body is read for people, within the same clock and up to a bound; a connection whose
/// answer was not read to its end is dropped.
pub(super) async fn read_answer(
    response: hyper::Response<Incoming>,
    started: Instant,
    deadline: Instant,
    database_us: i64,
) -> Answer {
    let status = response.status();
    let now =
        SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(database_us).unwrap_or(0));
    let wait = wait_from_headers(response.headers(), now);
    let mut note = status.is_redirection().then(|| {
        let target = response.headers().get(LOCATION).map(HeaderValue::as_bytes);
        let target = target.map(|t| clean(&String::from_utf8_lossy(t)));
        format!(
            "redirects are not followed: {status} to {}",
            target.as_deref().unwrap_or("nowhere")
        )
    });
    let deadline = match status.as_u16() {
        429 => deadline.min(Instant::now() + RATE_LIMITED_READ),
        _ => deadline,
    };
    let mut body = response.into_body();
    let mut read = Vec::new();
    while read.len() < MOST_READ {
        match timeout_at(deadline.into(), body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Some(data) = frame.data_ref() {
                    let room = MOST_READ - read.len();
                    read.extend_from_slice(data.get(..data.len().min(room)).unwrap_or_default());
                }
            }
            Ok(Some(Err(error))) => {
                note.get_or_insert_with(|| format!("the answer's body broke off: {error}"));
                break;
            }
            Ok(None) => break,
            Err(_) => {
                note.get_or_insert_with(|| "the answer's body did not end in time".to_owned());
                break;
            }
        }
    }
    Answer {
        http_status: Some(status.as_u16()),
        error: note.map(|note| (ErrorCode::BadAnswer, note)),
        wait,
        excerpt: (!read.is_empty()).then(|| clean(&String::from_utf8_lossy(&read))),
        started,
        duration: started.elapsed(),
    }
}

/// What a text column takes, and no more than is kept.
fn clean(text: &str) -> String {
    text.chars()
        .filter(|c| *c != '\0')
        .take(MOST_KEPT)
        .collect()
}
