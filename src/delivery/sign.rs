//! Signatures, in the two styles that receivers have libraries for.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// How requests of an endpoint are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `t=<unix>,v1=<hex>` over `<t>.<body>`, keyed with the secret's whole text: what Stripe's libraries verify.
    Stripe,
    /// `v1,<base64>` over `<id>.<t>.<body>`, keyed with the bytes the secret encodes: Standard Webhooks,
    /// <https://www.standardwebhooks.com>.
    Standard,
}

/// A signature style of another name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown signature style {0:?}: use stripe or standard")]
pub struct UnknownStyle(String);

impl FromStr for Style {
    type Err = UnknownStyle;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "stripe" => Ok(Self::Stripe),
            "standard" => Ok(Self::Standard),
            other => Err(UnknownStyle(other.to_owned())),
        }
    }
}

/// A signing secret: `whsec_` and the padded base64 of 24 to 64 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    key: Vec<u8>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A text that is no secret. It does not repeat the text.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a signing secret is whsec_ and the padded base64 of 24 to 64 bytes")]
pub struct BadSecret;

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let encoded = text.strip_prefix("whsec_").ok_or(BadSecret)?;
        let key = STANDARD.decode(encoded).map_err(|_| BadSecret)?;
        if !(24..=64).contains(&key.len()) {
            return Err(BadSecret);
        }
        Ok(Self {
            text: text.to_owned(),
            key,
        })
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    // HMAC takes a key of any length (RFC 2104); the error type is for other MACs.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        return Vec::new();
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

/// The value of `Webhook-Signature`: one signature per secret, in their order (newest first).
#[must_use]
pub fn signature(
    style: Style,
    secrets: &[Secret],
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let t = timestamp.to_string();
    match style {
        Style::Stripe => secrets.iter().fold(format!("t={t}"), |value, secret| {
            let mac = hmac(secret.text.as_bytes(), &[t.as_bytes(), b".", body]);
            format!("{value},v1={}", hex::encode(mac))
        }),
        Style::Standard => {
            let parts = [id.as_bytes(), b".", t.as_bytes(), b".", body];
            let each = secrets
                .iter()
                .map(|s| format!("v1,{}", STANDARD.encode(hmac(&s.key, &parts))));
            each.collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OTHER: &str = "whsec_/////////////////////////////////////w==";

    #[test]
    fn standard_style_verifies_with_the_receivers_library() {
        let (id, body) = ("01a22f90-35f0-7795-ab67-3e71beec0f8e", "{\"é\":\"😀\"}");
        let t = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs() as i64;
        let secrets: Vec<Secret> = vec![OTHER.parse().unwrap(), SECRET.parse().unwrap()];
        let value = signature(Style::Standard, &secrets, id, t, body.as_bytes());
        let mut headers = http_headers(id, t, &value);
        for secret in [OTHER, SECRET] {
            let webhook = standardwebhooks::Webhook::new(secret).unwrap();
            webhook.verify(body.as_bytes(), &headers).unwrap();
            assert!(webhook.verify(b"{}", &headers).is_err());
        }
        headers.insert("webhook-id", "another".parse().unwrap());
        let webhook = standardwebhooks::Webhook::new(SECRET).unwrap();
        assert!(webhook.verify(body.as_bytes(), &headers).is_err());
    }

    fn http_headers(id: &str, t: i64, value: &str) -> hyper::HeaderMap {
        let mut headers = hyper::HeaderMap::new();
        headers.insert("webhook-id", id.parse().unwrap());
        headers.insert("webhook-timestamp", t.to_string().parse().unwrap());
        headers.insert("webhook-signature", value.parse().unwrap());
        headers
    }

    #[test]
    fn secrets_are_taken_strictly_and_never_shown() {
        let good: Secret = SECRET.parse().unwrap();
        assert_eq!(format!("{good:?}"), "Secret(…)");
        for bad in [
            "",
            "whsec_",
            &SECRET[6..],
            &SECRET[..SECRET.len() - 1],
            &format!("{SECRET}\n"),
            &format!(" {SECRET}"),
            &format!("v1,{SECRET}"),
            "whsec_c2hvcnQ=",
        ] {
            assert_eq!(bad.parse::<Secret>(), Err(BadSecret), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Secret>();
            let _ = format!("whsec_{text}").parse::<Secret>();
            let _ = text.parse::<Style>();
        }
    }
}
