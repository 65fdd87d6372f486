//! What the receiver answers: a random script, drawn from the request itself, so that a seed replays it whatever the
//! timing.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::choices::Choices;
use crate::fixtures::http::{Reply, Request};
use crate::fixtures::receiver::Receiver;

const STATUSES: &[u16] = &[
    201, 202, 204, 206, 300, 301, 302, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    411, 413, 415, 418, 421, 422, 425, 426, 428, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507,
    520, 522, 599, 999,
];

/// Answers without a head that is any good, or with nothing behind it.
const MALFORMED: &[&[u8]] = &[
    b"",
    b"\r\n\r\n\r\n",
    b"HTTP/1.1\r\n\r\n",
    b"HTTP/1.1 abc Nonsense\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 500 No\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 500 No\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
    b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 503 No\r\nRetry-After: \xff\xfe\r\n\r\n",
    b"HTTP/1.1 500 No\r\nContent-Length: 20\r\n\r\nnull \x00 and \xc3\x28 here",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"<html>not HTTP at all</html>",
];

/// Good heads that promise more than comes: accepted all the same.
const CUT_SHORT: &[&[u8]] = &[
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
    b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the connection closes",
];

#[derive(Clone, Copy)]
enum Kind {
    Accept,
    Status,
    Gone,
    Limited,
    Unavailable,
    Stall,
    Close,
    Reset,
    Huge,
    Malformed,
    CutShort,
    /// Half a body, and silence.
    HalfBody,
    Vanish,
}

/// A receiver, and what it knows.
pub struct Receivers {
    pub receiver: Receiver,
    /// From then on everything is accepted at once.
    calm: Arc<AtomicBool>,
    /// Requests so far.
    count: Arc<AtomicUsize>,
    /// Path and id of requests whose sender may have read a 2xx head that was written by hand.
    accepted: Arc<Mutex<HashSet<(String, String)>>>,
}

impl Receivers {
    /// Starts one with the script of this seed.
    pub async fn start(seed: u64) -> Self {
        let calm = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(Mutex::new(HashSet::new()));
        let count = Arc::new(AtomicUsize::new(0));
        let (quiet, noted) = (Arc::clone(&calm), Arc::clone(&accepted));
        let counted = Arc::clone(&count);
        let receiver = Receiver::start(move |request, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            if quiet.load(Ordering::Relaxed) {
                return Reply::status(200);
            }
            let (reply, by_hand) = script(seed, request);
            if by_hand {
                let id = request.header("webhook-id").unwrap_or_default().to_owned();
                noted.lock().unwrap().insert((request.path.clone(), id));
            }
            reply
        })
        .await;
        Self {
            receiver,
            calm,
            count,
            accepted,
        }
    }

    /// Accepts everything from now on.
    pub fn calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    /// How many requests came so far.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether a request to this path with this id got a 2xx head that was written by hand.
    pub fn accepted(&self, path: &str, id: &str) -> bool {
        self.accepted
            .lock()
            .unwrap()
            .contains(&(path.to_owned(), id.to_owned()))
    }
}

fn script(seed: u64, request: &Request) -> (Reply, bool) {
    let number = request.header("webhook-attempt").unwrap_or_default();
    let body = String::from_utf8_lossy(&request.body);
    let who = format!(
        "{} {number} {}",
        request.path,
        body.get(..40).unwrap_or(&body)
    );
    let mut choices = Choices::of(seed, &who);
    let slow = request.path.starts_with("/slow");
    // Some endpoints are in a bad way: of their requests, four in ten mostly fail.
    let bad = request.path.ends_with(['0', '3', '6', '9']) && choices.chance(0.4);
    // Rarely: it disables the endpoint.
    let gone = if choices.chance(0.05) { 5 } else { 0 };
    let kind = choices.weighted(&[
        (if bad { 20 } else { 120 }, Kind::Accept),
        (24, Kind::Status),
        (gone, Kind::Gone),
        (3, Kind::Limited),
        (2, Kind::Unavailable),
        (if slow { 12 } else { 2 }, Kind::Stall),
        (4, Kind::Close),
        (6, Kind::Reset),
        (2, Kind::Huge),
        (6, Kind::Malformed),
        (4, Kind::CutShort),
        (3, Kind::HalfBody),
        (3, Kind::Vanish),
    ]);
    let delay = if choices.chance(0.8) {
        choices.time(1, 80)
    } else {
        choices.time(80, 900)
    };
    let text = |choices: &mut Choices, all: &[&[u8]]| {
        choices.pick(all).copied().unwrap_or_default().to_vec()
    };
    let by_hand = matches!(kind, Kind::CutShort);
    let reply = match kind {
        Kind::Accept => Reply::status(200).after(delay).body("ok"),
        Kind::Status => Reply::status(choices.pick(STATUSES).copied().unwrap_or(500))
            .after(delay)
            .body("no \u{0} no"),
        Kind::Gone => Reply::status(410).after(delay),
        Kind::Limited => {
            let limited = Reply::status(429).after(delay);
            match choices.between(0, 3) {
                0 => limited,
                1 => limited.header("retry-after", "soon"),
                wait => limited.header("retry-after", wait),
            }
        }
        Kind::Unavailable => Reply::status(503).after(delay).header("retry-after", 1),
        Kind::Stall => Reply::Hang,
        Kind::Close => Reply::Close,
        Kind::Reset => Reply::Reset,
        Kind::Huge => {
            Reply::status(if choices.chance(0.5) { 200 } else { 500 }).body(vec![b'x'; 3 << 20])
        }
        Kind::Malformed => Reply::Raw(text(&mut choices, MALFORMED)),
        Kind::CutShort => Reply::Raw(text(&mut choices, CUT_SHORT)),
        Kind::HalfBody => Reply::status(if choices.chance(0.5) { 200 } else { 502 })
            .header("content-length", 100)
            .body("half"),
        Kind::Vanish => Reply::status(200).after(delay).then_close(),
    };
    (reply, by_hand)
}
