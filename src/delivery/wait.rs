//! How long an answer asks us to wait.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::{HeaderName, RETRY_AFTER};

/// The longest wait ever returned, 100 years: whatever a header says, the result can be added to
/// any clock. The policy's own cap is far below.
pub const LONGEST_WAIT: Duration = Duration::from_secs(100 * YEAR);

const YEAR: u64 = 365 * 24 * 3600;

/// `RateLimit-Reset` of the IETF draft's early revisions: seconds.
pub(crate) const RATELIMIT_RESET: HeaderName = HeaderName::from_static("ratelimit-reset");
/// `X-RateLimit-Reset`: seconds at some services, a unix epoch at others.
pub(crate) const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The wait that the headers of an answer ask for, counted from `now`, the database's clock.
///
/// In this order, the first usable one: `Retry-After` (RFC 9110 §10.2.3: digits, or a date in any
/// of its three forms), `RateLimit-Reset`, `X-RateLimit-Reset` (digits; above one year of seconds
/// they are a unix epoch). Of a header sent more than once, the longest usable wait counts.
///
/// Unusable is everything else, and a moment in the past; `0` is usable and is no wait. The floor
/// and the cap are the caller's, who has the policy.
#[must_use]
pub fn wait_from_headers(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    longest(headers, &RETRY_AFTER, |text| retry_after(text, now))
        .or_else(|| longest(headers, &RATELIMIT_RESET, |text| reset(text, now)))
        .or_else(|| longest(headers, &X_RATELIMIT_RESET, |text| reset(text, now)))
}

fn longest(
    headers: &HeaderMap,
    name: &HeaderName,
    read: impl Fn(&str) -> Option<Duration>,
) -> Option<Duration> {
    let values = headers.get_all(name).iter();
    let waits = values.filter_map(|value| read(value.to_str().ok()?.trim_matches([' ', '\t'])));
    waits.max().map(|wait| wait.min(LONGEST_WAIT))
}

fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    seconds(text).map(Duration::from_secs).or_else(|| {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(now).ok()
    })
}

fn reset(text: &str, now: SystemTime) -> Option<Duration> {
    match seconds(text)? {
        value if value <= YEAR => Some(Duration::from_secs(value)),
        epoch => {
            let now = now.duration_since(UNIX_EPOCH).ok()?;
            Duration::from_secs(epoch).checked_sub(now)
        }
    }
}

/// Plain digits; what does not fit saturates.
fn seconds(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;
    use proptest::prelude::*;

    const NOW: u64 = 1_767_225_600; // Thu, 01 Jan 2026 00:00:00 GMT

    fn wait(pairs: &[(&str, &str)]) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            headers.append(name, value.parse().unwrap());
        }
        wait_from_headers(&headers, UNIX_EPOCH + Duration::from_secs(NOW))
    }

    #[allow(clippy::unnecessary_wraps)]
    fn secs(n: u64) -> Option<Duration> {
        Some(Duration::from_secs(n))
    }

    #[test]
    fn retry_after_table() {
        let nines = "9".repeat(40);
        let cases = [
            ("7", secs(7)),
            (" 7 ", secs(7)),
            ("\t7", secs(7)),
            ("007", secs(7)),
            ("0", secs(0)),
            ("Thu, 01 Jan 2026 00:00:07 GMT", secs(7)),
            ("Thursday, 01-Jan-26 00:00:07 GMT", secs(7)),
            ("Thu Jan  1 00:00:07 2026", secs(7)),
            ("Wed, 31 Dec 2025 23:00:00 GMT", None),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("7s", None),
            ("abc", None),
            ("", None),
            ("7, 9", None),
            ("2026", secs(2026)),
            ("86400000", secs(86_400_000)),
            ("9223372036854775808", Some(LONGEST_WAIT)),
            (&nines, Some(LONGEST_WAIT)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(LONGEST_WAIT)),
        ];
        for (value, expected) in cases {
            assert_eq!(wait(&[("retry-after", value)]), expected, "{value:?}");
        }
    }

    #[test]
    fn the_longest_usable_field_counts() {
        assert_eq!(
            wait(&[("retry-after", "3"), ("retry-after", "60")]),
            secs(60)
        );
        assert_eq!(
            wait(&[("retry-after", "60"), ("retry-after", "x")]),
            secs(60)
        );
    }

    #[test]
    fn reset_headers_stand_in() {
        let epoch = (NOW + 9).to_string();
        let past = (NOW - 9).to_string();
        let cases: [(&[(&str, &str)], _); 9] = [
            (
                &[("ratelimit-reset", "5"), ("x-ratelimit-reset", "6")],
                secs(5),
            ),
            (&[("retry-after", "-1"), ("ratelimit-reset", "5")], secs(5)),
            (&[("retry-after", "0"), ("ratelimit-reset", "5")], secs(0)),
            (
                &[("ratelimit-reset", "5;w=1"), ("x-ratelimit-reset", "6")],
                secs(6),
            ),
            (&[("x-ratelimit-reset", &epoch)], secs(9)),
            (&[("ratelimit-reset", &epoch)], secs(9)),
            (&[("x-ratelimit-reset", &past)], None),
            (&[("x-ratelimit-reset", "31536000")], secs(YEAR)),
            (
                &[("x-ratelimit-reset", "Thu, 01 Jan 2026 00:00:07 GMT")],
                None,
            ),
        ];
        for (pairs, expected) in cases {
            assert_eq!(wait(pairs), expected, "{pairs:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_any_clock(
            fields in prop::collection::vec((0..3usize, prop::collection::vec(any::<u8>(), 0..48)), 0..6),
            now in any::<u32>(),
        ) {
            let names = [RETRY_AFTER, RATELIMIT_RESET, X_RATELIMIT_RESET];
            let mut headers = HeaderMap::new();
            for (name, bytes) in fields {
                if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                    headers.append(names[name].clone(), value);
                }
            }
            let wait = wait_from_headers(&headers, UNIX_EPOCH + Duration::from_secs(now.into()));
            prop_assert!(wait.is_none_or(|w| w <= LONGEST_WAIT));
        }

        #[test]
        fn near_misses(text in "[0-9A-Za-z:, +.-]{0,32}") {
            let wait = wait(&[("retry-after", &text), ("x-ratelimit-reset", &text)]);
            prop_assert!(wait.is_none_or(|w| w <= LONGEST_WAIT));
        }
    }
}
