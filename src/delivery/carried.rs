//! What a connection has carried.
//!
//! A request that dies on a used connection, before a byte of its answer came, may have met one that the receiver
//! had closed already. Bytes are counted above TLS: its goodbye is no answer.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use hyper::{Uri, http::Extensions};
use hyper_tls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep_until},
};
use tower_service::Service;

use super::connect::Dialler;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// How long after its request's time a write ends: the request, which says what happened, comes first.
const WRITES_END_AFTER: Duration = Duration::from_millis(100);

/// Requests and bytes that a connection has carried.
#[derive(Clone, Default)]
pub(super) struct Uses(Arc<Counts>);

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    bytes_read: AtomicUsize,
    write_by: Mutex<Option<Instant>>,
}

impl Uses {
    /// Counts a request in; returns how many there were before.
    pub(super) fn count(&self) -> usize {
        self.0.requests.fetch_add(1, Ordering::Relaxed)
    }

    /// Bytes that came so far.
    pub(super) fn bytes_read(&self) -> usize {
        self.0.bytes_read.load(Ordering::Acquire)
    }

    /// The request that leaves now has until then.
    pub(super) fn set_deadline(&self, deadline: Instant) {
        *self.lock() = Some(deadline + WRITES_END_AFTER);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        let write_by = self.0.write_by.lock();
        write_by.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes connections that count.
#[derive(Clone)]
pub(super) struct Counting(pub(super) HttpsConnector<Dialler>);

impl Service<Uri> for Counting {
    type Response = TokioIo<Counted>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Counted>, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            Ok(TokioIo::new(Counted {
                stream: TokioIo::new(connecting.await?),
                uses: Uses::default(),
                write_ends: None,
            }))
        })
    }
}

/// A connection that counts.
pub(super) struct Counted {
    stream: TokioIo<Stream>,
    uses: Uses,
    /// While a write waits.
    write_ends: Option<Pin<Box<Sleep>>>,
}

impl Counted {
    /// What became of a write, or that its time is over.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_ends = None;
            return written;
        }
        let Some(write_by) = *self.uses.lock() else {
            return Poll::Pending;
        };
        let ends = self
            .write_ends
            .get_or_insert_with(|| Box::pin(sleep_until(write_by.into())));
        if ends.deadline() != write_by.into() {
            ends.as_mut().reset(write_by.into());
        }
        ready!(ends.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        self.stream.inner().connected().extra(self.uses.clone())
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let bytes = buf.filled().len() - before;
        self.uses.0.bytes_read.fetch_add(bytes, Ordering::Release);
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.in_time(cx, written)
    }

    // Without it hyper copies each body into a buffer of the connection, which keeps that size while it lives.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(cx);
        self.in_time(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.in_time(cx, done)
    }
}

/// What a connection has carried so far.
pub(super) fn uses_of(connected: &Connected) -> Option<Uses> {
    let mut extensions = Extensions::new();
    connected.get_extras(&mut extensions);
    extensions.remove()
}
