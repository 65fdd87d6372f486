//! Signatures verified as a receiver would, from the bytes that came; shares nothing with what signs.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::cast::Style;
use super::receiver::Seen;

/// How far a timestamp may be off, as the verification libraries of receivers have it.
const TOLERANCE_S: u64 = 300;

/// Why a signature is not accepted.
pub fn signature(style: Style, secret: &str, seen: &Seen) -> Result<(), String> {
    let value = seen.header("webhook-signature");
    let time = seen.header("webhook-timestamp");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |t| t.as_secs());
    let stamp: u64 = time
        .parse()
        .map_err(|_| format!("Webhook-Timestamp is {time:?}"))?;
    if now.abs_diff(stamp) > TOLERANCE_S {
        return Err(format!(
            "Webhook-Timestamp {stamp} is {} s off",
            now.abs_diff(stamp)
        ));
    }
    let accepted = match style {
        Style::Stripe => stripe(value, time, secret, &seen.body)?,
        Style::Standard => standard(value, time, secret, seen)?,
    };
    if accepted {
        Ok(())
    } else {
        Err(format!("no signature in {value:?} is right"))
    }
}

fn stripe(value: &str, time: &str, secret: &str, body: &[u8]) -> Result<bool, String> {
    let mut parts = value.split(',');
    let stamp = parts.next().and_then(|p| p.strip_prefix("t="));
    if stamp != Some(time) {
        return Err(format!("{value:?} does not carry the timestamp {time}"));
    }
    Ok(parts
        .filter_map(|p| p.strip_prefix("v1="))
        .filter_map(|hex| hex::decode(hex).ok())
        .any(|mac| right(secret.as_bytes(), &[time.as_bytes(), b".", body], &mac)))
}

fn standard(value: &str, time: &str, secret: &str, seen: &Seen) -> Result<bool, String> {
    let key = secret
        .strip_prefix("whsec_")
        .and_then(|key| STANDARD.decode(key).ok())
        .ok_or("the secret is not whsec_ and base64")?;
    let id = seen.header("webhook-id").as_bytes();
    let signed: [&[u8]; 5] = [id, b".", time.as_bytes(), b".", &seen.body];
    Ok(value
        .split(' ')
        .filter_map(|p| p.strip_prefix("v1,"))
        .filter_map(|text| STANDARD.decode(text).ok())
        .any(|mac| right(&key, &signed, &mac)))
}

fn right(key: &[u8], parts: &[&[u8]], mac: &[u8]) -> bool {
    let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(key) else {
        return false;
    };
    for part in parts {
        hmac.update(part);
    }
    hmac.verify_slice(mac).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use bytes::Bytes;
    use hyper::HeaderMap;

    use super::*;

    const SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

    fn seen(value: &str, body: &'static str) -> Seen {
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "msg_1".parse().unwrap());
        headers.insert("webhook-signature", value.parse().unwrap());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        headers.insert("webhook-timestamp", now.into());
        Seen {
            arrived: Instant::now(),
            answered: None,
            endpoint: "x".to_owned(),
            headers,
            body: Bytes::from_static(body.as_bytes()),
            status: 0,
        }
    }

    fn mac(key: &[u8], text: &str) -> Vec<u8> {
        let mut hmac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().to_vec()
    }

    #[test]
    fn accepts_what_is_right_and_nothing_else() {
        let time = seen("", "").header("webhook-timestamp").to_owned();
        let key = STANDARD.decode(&SECRET[6..]).unwrap();
        let hex = hex::encode(mac(SECRET.as_bytes(), &format!("{time}.{{}}")));
        let base64 = STANDARD.encode(mac(&key, &format!("msg_1.{time}.{{}}")));

        let stripe = format!("t={time},v1={hex}");
        assert_eq!(
            signature(Style::Stripe, SECRET, &seen(&stripe, "{}")),
            Ok(())
        );
        assert!(signature(Style::Stripe, SECRET, &seen(&stripe, "{ }")).is_err());
        assert!(signature(Style::Standard, SECRET, &seen(&stripe, "{}")).is_err());

        let standard = format!("v1,AAAA v1,{base64}");
        assert_eq!(
            signature(Style::Standard, SECRET, &seen(&standard, "{}")),
            Ok(())
        );
        assert!(signature(Style::Standard, SECRET, &seen(&standard, "[]")).is_err());
        assert!(signature(Style::Stripe, SECRET, &seen(&standard, "{}")).is_err());
    }
}
