//! The bodies a worker holds, counted by their bytes: in queues and in requests, wherever a part of one still is.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;

/// Counts bytes from when a body is fetched until nothing holds any of it. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    /// How many are held now.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// A body that counts while it is held.
    pub(super) fn hold(&self, body: &str) -> Bytes {
        self.0.fetch_add(body.len(), Ordering::Relaxed);
        Bytes::from_owner(Body {
            bytes: body.as_bytes().into(),
            held: self.clone(),
        })
    }
}

struct Body {
    bytes: Box<[u8]>,
    held: HeldBytes,
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.held.0.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_counts_until_its_last_part_goes() {
        let held = HeldBytes::default();
        let mut body = held.hold("0123456789");
        let other = held.clone().hold("");
        assert_eq!((held.count(), &body[..]), (10, &b"0123456789"[..]));
        let part = body.split_to(3);
        drop(body);
        assert_eq!((held.count(), &part[..]), (10, &b"012"[..]));
        drop((part, other));
        assert_eq!(held.count(), 0);
    }
}
