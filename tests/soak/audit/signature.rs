//! Stripe-style signatures, verified from what came; shares nothing with what signs.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::evidence::Seen;

/// Whether one of the signatures of a request was made with this secret.
pub fn is_right(request: &Seen, secret: &str) -> bool {
    let mut parts = request.signature.split(',');
    let stamp = parts.next().and_then(|p| p.strip_prefix("t="));
    if stamp != Some(&request.timestamp) {
        return false;
    }
    let signatures = parts
        .filter_map(|p| p.strip_prefix("v1="))
        .filter_map(|text| hex::decode(text).ok());
    let mut right = signatures.map(|signature| {
        let Ok(mut hmac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
            return false;
        };
        hmac.update(request.timestamp.as_bytes());
        hmac.update(b".");
        hmac.update(&request.body);
        hmac.verify_slice(&signature).is_ok()
    });
    right.any(|is| is)
}
