//! How long an answer asks to be left alone.
//!
//! `Retry-After` (RFC 9110 §10.2.3: a number of seconds, or an HTTP date), else `RateLimit-Reset`, else
//! `X-RateLimit-Reset`. A value that cannot be used counts as absent. Of several usable fields of one name the
//! longest wait holds: the receiver is respected. Bounds are the policy's business, not this module's.

use std::time::{Duration, SystemTime};

use hyper::{HeaderMap, header::HeaderValue};

/// Beyond a year a reset value is no count of seconds but an epoch.
const YEAR: u64 = 31_536_000;

/// The wait that headers ask for; `now` is the database clock, against which dates are read.
#[must_use]
pub fn wait_from_headers(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let longest = |name: &str, read: &dyn Fn(&HeaderValue) -> Option<Duration>| {
        headers.get_all(name).iter().filter_map(read).max()
    };
    longest("retry-after", &|value| retry_after(value, now))
        .or_else(|| longest("ratelimit-reset", &|value| reset(value, now)))
        .or_else(|| longest("x-ratelimit-reset", &|value| reset(value, now)))
}

fn retry_after(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Some(seconds) = digits(text) {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    date.duration_since(now).ok().filter(|wait| !wait.is_zero())
}

fn reset(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let seconds = digits(value.to_str().ok()?.trim())?;
    if seconds <= YEAR {
        return Some(Duration::from_secs(seconds));
    }
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Duration::from_secs(seconds)
        .checked_sub(now)
        .filter(|wait| !wait.is_zero())
}

/// A plain number; one too large for any clock is the largest.
fn digits(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_094_309)
    }

    fn wait(fields: &[(&'static str, &str)]) -> Option<u64> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        wait_from_headers(&headers, now()).map(|d| d.as_secs())
    }

    #[test]
    fn retry_after_in_seconds() {
        for (value, seconds) in [
            ("7", Some(7)),
            (" 7 ", Some(7)),
            ("007", Some(7)),
            ("0", Some(0)),
            ("86400000", Some(86_400_000)),
            ("9223372036854775808", Some(9_223_372_036_854_775_808)),
            (&"9".repeat(40), Some(u64::MAX)),
            ("-5", None),
            ("+5", None),
            ("1.5", None),
            ("7s", None),
            ("abc", None),
            ("", None),
            ("7, 9", None),
        ] {
            assert_eq!(wait(&[("retry-after", value)]), seconds, "{value:?}");
        }
        assert_eq!(
            wait(&[("retry-after", "3"), ("retry-after", "60")]),
            Some(60)
        );
    }

    #[test]
    fn retry_after_as_a_date() {
        let ahead = httpdate::fmt_http_date(now() + Duration::from_secs(7));
        assert_eq!(wait(&[("retry-after", &ahead)]), Some(7));
        let past = httpdate::fmt_http_date(now() - Duration::from_secs(3600));
        assert_eq!(wait(&[("retry-after", &past)]), None);
        // The obsolete forms of the same moment, RFC 9110 §5.6.7: 2026-12-01 03:05:16 UTC.
        assert_eq!(
            wait(&[("retry-after", "Tuesday, 01-Dec-26 03:05:16 GMT")]),
            Some(7)
        );
        assert_eq!(
            wait(&[("retry-after", "Tue Dec  1 03:05:16 2026")]),
            Some(7)
        );
        assert!(wait(&[("retry-after", "Fri, 31 Dec 9999 23:59:59 GMT")]) > Some(YEAR));
    }

    #[test]
    fn reset_headers_step_in_when_retry_after_is_unusable() {
        let fields = [
            ("retry-after", "soon"),
            ("ratelimit-reset", "9"),
            ("x-ratelimit-reset", "8"),
        ];
        assert_eq!(wait(&fields), Some(9));
        assert_eq!(wait(&[("x-ratelimit-reset", "8")]), Some(8));
        assert_eq!(wait(&[("x-ratelimit-reset", "1796094319")]), Some(10));
        assert_eq!(wait(&[("x-ratelimit-reset", "1796094300")]), None);
        assert_eq!(wait(&[("ratelimit-reset", "31536000")]), Some(YEAR));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(name in 0usize..3, bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let name = ["retry-after", "ratelimit-reset", "x-ratelimit-reset"][name];
            if let Ok(value) = HeaderValue::from_bytes(&bytes) {
                let mut headers = HeaderMap::new();
                headers.append(name, value);
                let _ = wait_from_headers(&headers, now());
                let _ = wait_from_headers(&headers, SystemTime::UNIX_EPOCH);
            }
        }
    }
}
