//! The last question before a request leaves: may it still?

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper_util::client::legacy::connect::CaptureConnection;

use super::carried::{Uses, uses_of};

/// Whether a request may leave, asked before its first byte, and whether the answer ever was no.
pub(super) struct LeaveGate {
    open: Box<dyn Fn() -> bool + Send + Sync>,
    refused: AtomicBool,
}

impl LeaveGate {
    pub(super) fn new(open: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self {
            open: Box::new(open),
            refused: AtomicBool::new(false),
        }
    }

    pub(super) fn refused(&self) -> bool {
        self.refused.load(Ordering::Acquire)
    }
}

/// A body that asks the gate when it is first read: hyper has buffered the head by then and written nothing, so
/// an error here means that no byte left.
pub(super) struct GatedBody {
    pub(super) bytes: Option<Bytes>,
    pub(super) gate: Arc<LeaveGate>,
    pub(super) connection: CaptureConnection,
    pub(super) left: Arc<OnceLock<Left>>,
}

/// How a body left.
pub(super) struct Left {
    /// The connection it left by.
    pub(super) uses: Uses,
    /// How many bytes had come over that before.
    pub(super) read_before: usize,
    pub(super) at: Instant,
}

#[derive(Debug, thiserror::Error)]
#[error("the request may not leave any more")]
pub(super) struct GateClosed;

impl Body for GatedBody {
    type Data = Bytes;
    type Error = GateClosed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, GateClosed>>> {
        Poll::Ready(match self.bytes.take() {
            Some(_) if !(self.gate.open)() => {
                self.gate.refused.store(true, Ordering::Release);
                Some(Err(GateClosed))
            }
            Some(bytes) => {
                let uses = self.connection.connection_metadata();
                if let Some(uses) = uses.as_ref().and_then(uses_of) {
                    let _ = self.left.set(Left {
                        read_before: uses.bytes_read(),
                        uses,
                        at: Instant::now(),
                    });
                }
                Some(Ok(Frame::data(bytes)))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}
