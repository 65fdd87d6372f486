//! The last question before a request leaves: may it still?

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
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

/// A connection that the receiver had closed already says so within a round trip. What dies later has met the
/// receiver.
pub(super) const DEAD_WITHIN: Duration = Duration::from_secs(1);
/// Most bytes of a body that are given to the connection at once: over TLS it copies them into a buffer that it
/// keeps.
const MOST_AT_ONCE: usize = 64 << 10;

/// A body that asks the gate when it is first read: hyper has buffered the head by then and written nothing, so
/// an error here means that no byte left.
pub(super) struct GatedBody {
    /// What has not been given to the connection yet.
    rest: Option<Bytes>,
    asked: bool,
    deadline: Instant,
    gate: Arc<LeaveGate>,
    connection: CaptureConnection,
    left: Arc<OnceLock<Left>>,
}

impl GatedBody {
    /// A body of these bytes, which has until `deadline`. `left` is set when they begin to leave.
    pub(super) fn new(
        bytes: Bytes,
        deadline: Instant,
        gate: Arc<LeaveGate>,
        connection: CaptureConnection,
        left: Arc<OnceLock<Left>>,
    ) -> Self {
        Self {
            rest: Some(bytes),
            asked: false,
            deadline,
            gate,
            connection,
            left,
        }
    }

    /// Whether it may leave. Once it has begun to, it does so whole.
    fn ask(&mut self) -> Result<(), GateClosed> {
        if std::mem::replace(&mut self.asked, true) {
            return Ok(());
        }
        if !(self.gate.open)() {
            self.rest = None;
            self.gate.refused.store(true, Ordering::Release);
            return Err(GateClosed);
        }
        let uses = self.connection.connection_metadata();
        if let Some(uses) = uses.as_ref().and_then(uses_of) {
            uses.set_deadline(self.deadline);
            let _ = self.left.set(Left {
                read_before: uses.bytes_read(),
                uses,
                at: Instant::now(),
            });
        }
        Ok(())
    }
}

/// How a body left.
pub(super) struct Left {
    /// The connection it left by.
    pub(super) uses: Uses,
    /// How many bytes had come over that before.
    pub(super) read_before: usize,
    pub(super) at: Instant,
}

impl Left {
    /// Whether it has met the receiver: then it is not repeated, whatever becomes of it.
    pub(super) fn met(&self) -> bool {
        self.uses.bytes_read() > self.read_before || self.at.elapsed() >= DEAD_WITHIN
    }
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
        if self.rest.is_none() {
            return Poll::Ready(None);
        }
        if let Err(closed) = self.ask() {
            return Poll::Ready(Some(Err(closed)));
        }
        let next = match &mut self.rest {
            Some(rest) if rest.len() > MOST_AT_ONCE => Some(rest.split_to(MOST_AT_ONCE)),
            last => last.take(),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.as_ref().map_or(0, |b| b.len() as u64))
    }
}
