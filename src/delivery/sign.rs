//! Signatures over the bytes that are sent, in the two styles receivers have libraries for.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// How `Webhook-Signature` is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Style {
    /// `t=<unix>,v1=<hex>` over `<t>.<body>`; the key is the secret's text, `whsec_` included.
    /// Source: <https://docs.stripe.com/webhooks/signature>, verified by Stripe's libraries.
    #[default]
    Stripe,
    /// `v1,<base64>` over `<id>.<t>.<body>`; the key is the decoded bytes after `whsec_`.
    /// Source: Standard Webhooks 1.0, <https://www.standardwebhooks.com>.
    Standard,
}

impl Style {
    /// The style as endpoints name it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Standard => "standard",
        }
    }
}

/// A signature style that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown signature style {0:?}: it is \"stripe\" or \"standard\"")]
pub struct UnknownStyle(String);

impl FromStr for Style {
    type Err = UnknownStyle;

    fn from_str(text: &str) -> Result<Self, UnknownStyle> {
        match text {
            "stripe" => Ok(Self::Stripe),
            "standard" => Ok(Self::Standard),
            other => Err(UnknownStyle(other.to_owned())),
        }
    }
}

/// What is wrong with a signing secret; never the secret itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// Secrets start with `whsec_`.
    #[error("a signing secret starts with whsec_")]
    Prefix,
    /// The rest is base64 of the standard alphabet, with padding and without blanks.
    #[error("after whsec_, a signing secret is padded standard base64")]
    Base64,
    /// Standard Webhooks asks for 24 to 64 bytes.
    #[error("a signing secret decodes to 24 to 64 bytes")]
    Length,
}

/// A signing secret, ready to sign in either style.
///
/// Parsed from `whsec_` + padded standard base64 of 24 to 64 bytes, and nothing else.
#[derive(Clone)]
pub struct Secret {
    by_text: Hmac<Sha256>,
    by_bytes: Hmac<Sha256>,
}

impl FromStr for Secret {
    type Err = BadSecret;

    fn from_str(text: &str) -> Result<Self, BadSecret> {
        let encoded = text.strip_prefix("whsec_").ok_or(BadSecret::Prefix)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| BadSecret::Base64)?;
        if !(24..=64).contains(&bytes.len()) {
            return Err(BadSecret::Length);
        }
        let keyed = |key: &[u8]| Hmac::new_from_slice(key).map_err(|_| BadSecret::Length);
        Ok(Self {
            by_text: keyed(text.as_bytes())?,
            by_bytes: keyed(&bytes)?,
        })
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

/// The value of `Webhook-Signature` for `body`.
///
/// `secrets` are all valid ones, newest first: during a rotation each signs, so that a receiver
/// may hold either. `id` is the event's id as in `Webhook-Id`, `timestamp` the unix seconds of
/// `Webhook-Timestamp`. Without a secret the result has no signature and no receiver accepts it.
#[must_use]
pub fn signature(
    style: Style,
    secrets: &[Secret],
    id: &str,
    timestamp: i64,
    body: &[u8],
) -> String {
    let time = timestamp.to_string();
    match style {
        Style::Stripe => {
            let signed = secrets.iter().map(|secret| {
                let tag = mac(&secret.by_text, &[time.as_bytes(), body]);
                format!(",v1={}", hex::encode(tag))
            });
            format!("t={time}{}", signed.collect::<String>())
        }
        Style::Standard => {
            let signed = secrets.iter().map(|secret| {
                let tag = mac(&secret.by_bytes, &[id.as_bytes(), time.as_bytes(), body]);
                format!("v1,{}", STANDARD.encode(tag))
            });
            signed.collect::<Vec<_>>().join(" ")
        }
    }
}

/// The HMAC of `parts` joined by dots.
fn mac(keyed: &Hmac<Sha256>, parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = keyed.clone();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            mac.update(b".");
        }
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests;
