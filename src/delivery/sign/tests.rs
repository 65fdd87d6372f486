use super::*;
use hyper::HeaderMap;
use standardwebhooks::Webhook;

const NEW: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";
const OLD: &str = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA=";
const SMALL: &str = r#"{"id":"in_1"}"#;
const ODD: &str = "{\"b\":1.0,\"a\":123456789012345678901,\"z\":1e2,\
                   \"u\":\"\\u00e9 \u{2028} / \u{1f600}\",\"b\":2}";

fn secrets(texts: &[&str]) -> Vec<Secret> {
    texts.iter().map(|t| t.parse().unwrap()).collect()
}

/// Expected values: `WebhookSignature.generate_signature_header` of Stripe's Python library
/// `stripe` 16.1.0; its `verify_header` accepts the last one with either secret.
#[test]
fn stripe_known_answers() {
    let cases: [(&[&str], i64, &str, &str); 5] = [
        (
            &[NEW],
            1_700_000_000,
            SMALL,
            "t=1700000000,v1=00d6da8b8826cd938f79465f8353691824cc4dda4f50cec56f20f54b9ee3c675",
        ),
        (
            &[NEW],
            1_767_225_600,
            ODD,
            "t=1767225600,v1=9ea87cd2af66c5814c2914ba369f6b9e9d8bcaf78f1ffe74425b4b49217e90bc",
        ),
        (
            &[OLD],
            1_700_000_000,
            SMALL,
            "t=1700000000,v1=a9df41a646315b39237162fd3b28b80ef81a2efd49a0ddfd136fa689a3046612",
        ),
        (
            &[OLD],
            1_767_225_600,
            ODD,
            "t=1767225600,v1=e1dc777fa8a8b66b479c2d1bb78a7c3996b0f10246cb6a7e7ef05a3cb4816455",
        ),
        (
            &[NEW, OLD],
            1_700_000_000,
            SMALL,
            "t=1700000000,v1=00d6da8b8826cd938f79465f8353691824cc4dda4f50cec56f20f54b9ee3c675,\
             v1=a9df41a646315b39237162fd3b28b80ef81a2efd49a0ddfd136fa689a3046612",
        ),
    ];
    for (texts, time, body, expected) in cases {
        let got = signature(
            Style::Stripe,
            &secrets(texts),
            "ignored",
            time,
            body.as_bytes(),
        );
        assert_eq!(got, expected);
    }
}

#[test]
fn standard_is_accepted_by_its_library() {
    let now = std::time::SystemTime::now();
    let now: i64 = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .try_into()
        .unwrap();
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let value = signature(
        Style::Standard,
        &secrets(&[NEW, OLD]),
        id,
        now,
        ODD.as_bytes(),
    );
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", id.parse().unwrap());
    headers.insert("webhook-timestamp", now.to_string().parse().unwrap());
    headers.insert("webhook-signature", value.parse().unwrap());
    for secret in [NEW, OLD] {
        let receiver = Webhook::new(secret).unwrap();
        receiver.verify(ODD.as_bytes(), &headers).unwrap();
        assert!(receiver.verify(SMALL.as_bytes(), &headers).is_err());
    }
    let newest = Webhook::new(NEW)
        .unwrap()
        .sign(id, now, ODD.as_bytes())
        .unwrap();
    assert!(value.starts_with(&format!("{newest} v1,")));
}

#[test]
fn secrets_are_strict_and_never_shown() {
    let encoded = |n: usize| format!("whsec_{}", STANDARD.encode(vec![7u8; n]));
    for n in [24, 25, 32, 64] {
        let secret: Secret = encoded(n).parse().unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(redacted)");
    }
    for n in [0, 23, 65] {
        assert_eq!(encoded(n).parse::<Secret>().unwrap_err(), BadSecret::Length);
    }
    let bare = NEW.trim_start_matches("whsec_");
    for text in [
        "",
        bare,
        &format!("v1,{NEW}"),
        &format!(" {NEW}"),
        "WHSEC_AAAA",
    ] {
        assert_eq!(text.parse::<Secret>().unwrap_err(), BadSecret::Prefix);
    }
    let unpadded = NEW.trim_end_matches('=');
    for text in [
        unpadded,
        &format!("{NEW} "),
        &format!("{NEW}\n"),
        "whsec_-_-_",
    ] {
        assert_eq!(text.parse::<Secret>().unwrap_err(), BadSecret::Base64);
    }
}

#[test]
fn styles_by_name() {
    for style in [Style::Stripe, Style::Standard] {
        assert_eq!(style.as_str().parse(), Ok(style));
    }
    assert!("Stripe".parse::<Style>().is_err());
}
