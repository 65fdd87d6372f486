//! Random input from outside, near the edge of what is valid: nothing panics, SQL and Rust judge alike, and
//! what is stored can be used. Readers that are Rust alone have their property tests beside them.

use std::net::{Ipv4Addr, Ipv6Addr};

use postrider::delivery::Secret;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::run;

/// So many values. They are put to the database in one statement, so a failure is not made smaller.
pub fn samples<T: std::fmt::Debug>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::default();
    (0..count)
        .map(|_| strategy.new_tree(&mut runner).unwrap().current())
        .collect()
}

/// Which of these texts a check of the schema accepts.
async fn accepted(check: &str, texts: &[String]) -> Vec<bool> {
    let db = TestDb::new().await;
    let client = db.connect().await;
    run(
        &client,
        &format!(
            "update postrider.settings set allow_http = true;
             create function pg_temp.takes(value text) returns boolean language plpgsql as $$
             begin
                 perform postrider.{check}(value);
                 return true;
             exception when others then
                 if sqlstate not like 'PR%' then raise; end if;
                 return false;
             end $$"
        ),
    )
    .await;
    let sql = "select array_agg(pg_temp.takes(t) order by i) from unnest($1::text[]) with ordinality u (t, i)";
    client.query_one(sql, &[&texts]).await.unwrap().get(0)
}

/// A URL that is stored is one that the sender parses, with the same host, and no number in disguise.
#[tokio::test]
async fn urls() {
    let host = prop_oneof![
        "[a-zA-Z0-9._-]{1,20}",
        "[a-z0-9]{1,8}\\.(example|test|[0-9]{1,3}|0x[0-9a-f]{0,3})",
        "[0-9]{1,3}(\\.[0-9]{1,3}){0,4}",
        "\\[[0-9a-f:.]{0,24}\\]",
        "\\[[0-9a-f]{0,4}::([0-9a-f]{1,4}:){0,5}[0-9]{0,3}(\\.[0-9]{0,3}){0,4}\\]",
        any::<u128>().prop_map(|bits| format!("[{}]", Ipv6Addr::from_bits(bits))),
        any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).to_string()),
        "[ -~]{0,16}",
    ];
    let port = prop_oneof![Just(String::new()), ":[0-9]{0,6}", ":[ -~]{0,3}"];
    let rest = prop_oneof![
        Just(String::new()),
        "[/?][!-~]{0,24}",
        "/[a-zA-Z0-9/._~%?=&-]{0,24}",
        "/(%[0-9A-Fa-f]{2}){0,4}",
        "\\PC{0,8}",
    ];
    let scheme = prop_oneof![4 => Just("https://"), 1 => Just("http://"), 1 => Just("ftp://"), 1 => Just("https:/")];
    let all = (scheme, host, port, rest).prop_map(|(s, h, p, r)| format!("{s}{h}{p}{r}"));
    let urls = samples(2500, all);
    let taken = accepted("_check_url", &urls).await;
    // About a tenth is; so few that this says nothing about chance, and would say nothing about URLs.
    let count = taken.iter().filter(|taken| **taken).count();
    assert!(count > 100, "{count} were taken");
    for (url, _) in urls.iter().zip(taken).filter(|(_, taken)| *taken) {
        let uri: hyper::Uri = url.parse().unwrap_or_else(|e| panic!("{url:?}: {e}"));
        let authority = uri.authority().unwrap().as_str();
        let (scheme, rest) = url.split_once("://").unwrap();
        assert_eq!(uri.scheme_str(), Some(scheme), "{url:?}");
        assert!(
            rest.starts_with(authority) && !authority.contains('@'),
            "{url:?}"
        );
        let host = uri.host().unwrap();
        if let Some(v6) = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
            assert!(v6.parse::<Ipv6Addr>().is_ok(), "{url:?}");
        } else if host
            .rsplit('.')
            .next()
            .unwrap()
            .bytes()
            .all(|b| b.is_ascii_digit())
        {
            assert!(host.parse::<Ipv4Addr>().is_ok(), "{url:?}");
        }
        if authority.len() > host.len() {
            assert!(uri.port_u16().is_some_and(|port| port > 0), "{url:?}");
        }
    }
}

/// SQL takes a secret exactly if the signer does.
#[tokio::test]
async fn secrets() {
    use base64::Engine as _;
    let encoded = |bytes: Vec<u8>| {
        let text = base64::engine::general_purpose::STANDARD.encode(bytes);
        format!("whsec_{text}")
    };
    let right = prop::collection::vec(any::<u8>(), 20..70).prop_map(encoded);
    // One character changed, put in or left out.
    let near = (
        right.clone(),
        any::<prop::sample::Index>(),
        "[A-Za-z0-9+/=_ \\n-]{0,1}",
        any::<bool>(),
    );
    let near = near.prop_map(|(text, at, with, keep)| {
        let at = at.index(text.len());
        let (before, after) = text.split_at(at);
        format!("{before}{with}{}", if keep { after } else { &after[1..] })
    });
    let all = prop_oneof![
        right,
        near,
        "whsec_[A-Za-z0-9+/]{30,90}={0,3}",
        "\\PC{0,40}"
    ];
    let secrets = samples(1500, all);
    let taken = accepted("_check_secret", &secrets).await;
    for (secret, taken) in secrets.iter().zip(taken) {
        assert_eq!(taken, secret.parse::<Secret>().is_ok(), "{secret:?}");
    }
}

fn is_event_type(text: &str) -> bool {
    let good = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
    };
    text.len() <= 128 && text.split('.').all(good)
}

fn is_pattern(text: &str) -> bool {
    // A longer one would match no event type.
    text.len() <= 128 && (text == "*" || is_event_type(text.strip_suffix(".*").unwrap_or(text)))
}

fn matches(pattern: &str, event_type: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        Some(beginning) => event_type.starts_with(beginning),
        None => pattern == event_type,
    }
}

/// What an event type and a pattern are, and which matches which, against a second definition.
#[tokio::test]
async fn event_types_and_patterns() {
    let parts = || prop_oneof![6 => "(a|b|A|_|-|0|ab){1,2}(\\.(a|b|ab|A)){0,3}", 1 => "[a-c.*_ -]{0,8}", 1 => "\\PC{0,6}"];
    let long = (120..135_usize).prop_map(|n| "x".repeat(n));
    let types = prop_oneof![8 => parts(), 1 => long];
    let patterns = (
        types.clone(),
        prop_oneof![Just(""), Just(".*"), Just("*"), Just("\n")],
    )
        .prop_map(|(text, end)| {
            if text == "a" {
                "*".to_owned()
            } else {
                format!("{text}{end}")
            }
        });
    let pairs = samples(3000, (types, patterns));
    let (types, patterns): (Vec<_>, Vec<_>) = pairs.iter().cloned().unzip();
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select postrider._is_event_type(t), postrider._is_pattern(p), p = any (postrider._patterns(t))
               from unnest($1::text[], $2::text[]) with ordinality u (t, p, i) order by i";
    let rows = client.query(sql, &[&types, &patterns]).await.unwrap();
    let mut matched = 0;
    for ((event_type, pattern), row) in pairs.iter().zip(&rows) {
        assert_eq!(
            row.get::<_, bool>(0),
            is_event_type(event_type),
            "{event_type:?}"
        );
        assert_eq!(row.get::<_, bool>(1), is_pattern(pattern), "{pattern:?}");
        if is_event_type(event_type) && is_pattern(pattern) {
            let right = matches(pattern, event_type);
            assert_eq!(
                row.get::<_, bool>(2),
                right,
                "{pattern:?} for {event_type:?}"
            );
            matched += usize::from(right);
        }
    }
    assert!(matched > 20, "{matched}");
}
