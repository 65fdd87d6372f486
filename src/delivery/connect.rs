//! Dialling: look up, judge every answer, connect.
//!
//! The judgement is on the address that is dialled, and each new connection looks its name up anew, so a name
//! that changes its answer between creation and sending gains nothing.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::{
    AddressGuard,
    resolve::{Lookups, Resolver, Stage},
};

tokio::task_local! {
    /// Whether the request that runs in this scope waits for its lookup to begin: the client hands nothing but
    /// the URL through to its connector.
    pub(super) static LOOKUP_WAITS: Arc<AtomicBool>;
}

/// How long a request may wait for its lookup to begin: it holds one of the worker's slots meanwhile.
const LOOKUP_WAIT: Duration = Duration::from_secs(1);
/// How long one of several addresses may take before the next is tried.
const NEXT_ADDRESS: Duration = Duration::from_secs(1);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("{0} is not an address that requests may go to")]
    Refused(IpAddr),
    #[error("{host} could not be looked up: {reason}")]
    Lookup { host: String, reason: String },
    #[error("the URL names no host")]
    NoHost,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Connects to what the guard permits.
#[derive(Clone)]
pub(super) struct Dialler {
    guard: Arc<AddressGuard>,
    lookups: Lookups,
}

impl Dialler {
    pub(super) fn new(guard: AddressGuard, resolver: Resolver) -> Self {
        Self {
            guard: Arc::new(guard),
            lookups: Lookups::new(resolver),
        }
    }

    async fn dial(self, uri: Uri, waits: Arc<AtomicBool>) -> Result<TokioIo<TcpStream>, DialError> {
        let host = uri.host().ok_or(DialError::NoHost)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(default);
        let addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => self.look_up(host, port, &waits).await?,
        };
        if let Some(refused) = addresses.iter().find(|a| !self.guard.permits(a.ip())) {
            return Err(DialError::Refused(refused.ip()));
        }
        let stream = connect_first(&addresses).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }

    async fn look_up(
        &self,
        host: &str,
        port: u16,
        waits: &AtomicBool,
    ) -> Result<Vec<SocketAddr>, DialError> {
        let failed = |reason: &str| DialError::Lookup {
            host: host.to_owned(),
            reason: reason.to_owned(),
        };
        let mut lookup = self.lookups.find(host);
        waits.store(true, Ordering::Release);
        let begun = lookup.wait_for(|stage| !matches!(stage, Stage::Waiting));
        match tokio::time::timeout(LOOKUP_WAIT, begun).await {
            Ok(begun) => drop(begun.map_err(|_| failed("it was given up"))?),
            Err(_) => return Err(failed("others take all threads")),
        }
        waits.store(false, Ordering::Release);
        let ended = lookup.wait_for(|stage| matches!(stage, Stage::Done(_)));
        let ended = ended.await.map_err(|_| failed("it was given up"))?.clone();
        let mut found = match ended {
            Stage::Done(found) => found.map_err(|reason| failed(&reason))?,
            Stage::Waiting | Stage::Running => Vec::new(),
        };
        if found.is_empty() {
            return Err(failed("it has no address"));
        }
        for address in &mut found {
            address.set_port(port);
        }
        Ok(found)
    }
}

async fn connect_first(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::other("no address");
    for (i, address) in addresses.iter().enumerate() {
        let connecting = TcpStream::connect(address);
        let connected = if i + 1 < addresses.len() {
            tokio::time::timeout(NEXT_ADDRESS, connecting)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        } else {
            connecting.await
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

impl Service<Uri> for Dialler {
    type Response = TokioIo<TcpStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let waits = LOOKUP_WAITS.try_with(Arc::clone).unwrap_or_default();
        Box::pin(self.clone().dial(uri, waits))
    }
}
