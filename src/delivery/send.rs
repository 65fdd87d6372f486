//! Sending one request: one clock over lookup, connect, TLS, write, head and body.

use std::{
    future::Future,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Uri,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use hyper_tls::HttpsConnector;
use hyper_util::{
    client::legacy::{Client, connect::capture_connection},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout_at;
use uuid::Uuid;

use super::{
    AddressGuard, Answer, ErrorCode, NotSent, Resolver,
    answer::read_answer,
    carried::{Counting, uses_of},
    connect::{Dialler, LOOKUP_WAITS},
    failure,
    leave::{DEAD_WITHIN, GatedBody, LeaveGate, Left},
};

/// How long an idle connection is kept: many servers close theirs after five seconds.
const IDLE: Duration = Duration::from_secs(4);
/// How many of them for a host. No more than were in use at once, which the endpoints' concurrency bounds; a
/// smaller number would close and open connections all the time where that is high.
const MOST_IDLE: usize = 1000;
/// A request to make.
#[derive(Debug)]
pub struct Request {
    /// Where to.
    pub uri: Uri,
    /// The event: `Webhook-Id`.
    pub event_id: Uuid,
    /// Its type: `Webhook-Event-Type`.
    pub event_type: String,
    /// Which attempt of the run, from 1: `Webhook-Attempt`.
    pub number: i32,
    /// Database time, unix seconds: `Webhook-Timestamp`.
    pub timestamp: i64,
    /// The endpoint's own headers.
    pub headers: HeaderMap,
    /// `Webhook-Signature`.
    pub signature: String,
    /// The bytes to send.
    pub body: Bytes,
    /// Limit of lookup, TCP and TLS.
    pub connect_timeout: Duration,
    /// Limit of everything.
    pub request_timeout: Duration,
}

type HttpClient = Client<Counting, GatedBody>;

/// Sends requests. Cheap to clone; clones share connections.
#[derive(Clone)]
pub struct Sender {
    pooled: HttpClient,
    fresh: HttpClient,
}

impl Sender {
    /// A sender that goes where the guard permits.
    pub fn new(guard: AddressGuard, resolver: Resolver) -> Result<Self, native_tls::Error> {
        Ok(Self::over(
            guard,
            resolver,
            native_tls::TlsConnector::new()?,
        ))
    }

    fn over(guard: AddressGuard, resolver: Resolver, tls: native_tls::TlsConnector) -> Self {
        let mut connector = HttpsConnector::from((Dialler::new(guard, resolver), tls.into()));
        connector.https_only(false);
        let client = |idle: usize| {
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(idle)
                // A request is repeated by us, once, with a token of the pace, or not at all.
                .retry_canceled_requests(false)
                .http1_title_case_headers(true)
                .http1_ignore_invalid_headers_in_responses(true)
                .http1_max_buf_size(64 << 10)
                .build(Counting(connector.clone()))
        };
        Self {
            pooled: client(MOST_IDLE),
            fresh: client(0),
        }
    }

    /// Makes one request, and repeats it at once on a fresh connection when a kept-alive one turns out to
    /// be dead before any answer.
    ///
    /// `database_us` is the database clock in microseconds since 1970, against which HTTP dates are read.
    /// `may_leave` is asked as the last act before the first byte; when it says no, nothing was sent.
    /// `may_repeat` is asked before a repeat.
    pub async fn send<F: Future<Output = bool>>(
        &self,
        mut request: Request,
        database_us: impl Fn() -> i64,
        may_leave: impl Fn() -> bool + Send + Sync + 'static,
        may_repeat: impl FnOnce() -> F,
    ) -> Result<Answer, NotSent> {
        let started = Instant::now();
        let deadline = started + request.request_timeout;
        let gate = Arc::new(LeaveGate::new(may_leave));
        let outcome = match build_headers(&request) {
            Ok(headers) => {
                let lookup_waits = Arc::new(AtomicBool::new(false));
                let body = std::mem::take(&mut request.body);
                let first = attempt(
                    &self.pooled,
                    &request,
                    body,
                    &headers,
                    &gate,
                    started,
                    deadline,
                );
                match LOOKUP_WAITS.scope(lookup_waits.clone(), first).await {
                    Err(failed)
                        if matches!(failed.code, ErrorCode::ConnectTimeout | ErrorCode::Dns)
                            && lookup_waits.load(Ordering::Acquire) =>
                    {
                        return Err(NotSent::NoLookup);
                    }
                    _ if gate.refused() => return Err(NotSent::GateClosed),
                    Err(mut failed) => match failed.repeat.take() {
                        Some(body) if may_repeat_by(deadline, may_repeat).await => {
                            let now = Instant::now();
                            let second = attempt(
                                &self.fresh,
                                &request,
                                body,
                                &headers,
                                &gate,
                                now,
                                deadline,
                            )
                            .await;
                            // The first left all the same, and the receiver may have it.
                            if gate.refused() { Err(failed) } else { second }
                        }
                        _ => Err(failed),
                    },
                    other => other,
                }
            }
            Err(reason) => Err(Failed::at_once(ErrorCode::BadRequest, reason)),
        };
        Ok(match outcome {
            Ok(response) => read_answer(response, started, deadline, database_us()).await,
            Err(failed) => Answer {
                http_status: None,
                error: Some((failed.code, failed.reason)),
                wait: None,
                excerpt: None,
                started,
                duration: started.elapsed(),
            },
        })
    }
}

async fn may_repeat_by<F: Future<Output = bool>>(
    deadline: Instant,
    ask: impl FnOnce() -> F,
) -> bool {
    timeout_at(deadline.into(), ask()).await.unwrap_or(false)
}

pub(super) struct Failed {
    pub(super) code: ErrorCode,
    pub(super) reason: String,
    /// The body to repeat it with, when it is to be repeated.
    pub(super) repeat: Option<Bytes>,
}

impl Failed {
    fn at_once(code: ErrorCode, reason: String) -> Self {
        Self {
            code,
            reason,
            repeat: None,
        }
    }
}

async fn attempt(
    client: &HttpClient,
    request: &Request,
    body: Bytes,
    headers: &HeaderMap,
    gate: &Arc<LeaveGate>,
    started: Instant,
    deadline: Instant,
) -> Result<hyper::Response<Incoming>, Failed> {
    let mut http = hyper::Request::new(());
    *http.method_mut() = Method::POST;
    *http.uri_mut() = request.uri.clone();
    *http.headers_mut() = headers.clone();
    let mut captured = capture_connection(&mut http);
    let left = Arc::new(OnceLock::new());
    let gated = GatedBody::new(
        body.clone(),
        deadline,
        gate.clone(),
        captured.clone(),
        left.clone(),
    );
    let connect_deadline = (started + request.connect_timeout).min(deadline);
    let mut answer = std::pin::pin!(client.request(http.map(|()| gated)));
    // Kept as long as a repeat may need it and no longer: many requests wait for their answers, and bodies are
    // most of what a worker holds.
    let mut spare = None;
    let early = tokio::select! {
        biased;
        answered = &mut answer => Some(answered),
        connected = async {
            let connected = captured.wait_for_connection_metadata().await;
            connected.as_ref().and_then(uses_of).map(|uses| uses.count() > 0)
        } => {
            spare = Some(body).filter(|_| connected.unwrap_or(false));
            None
        }
        () = tokio::time::sleep_until(connect_deadline.into()) => {
            let limit = connect_deadline.duration_since(started);
            let reason = format!("no connection within {limit:?}");
            return Err(Failed::at_once(ErrorCode::ConnectTimeout, reason));
        }
    };
    let answered = match early {
        Some(answered) => Ok(answered),
        None if spare.is_none() => timeout_at(deadline.into(), answer).await,
        None => loop {
            let left_at = left.get().map_or_else(Instant::now, |left: &Left| left.at);
            let look_at = (left_at + DEAD_WITHIN).min(deadline);
            let answered = timeout_at(look_at.into(), &mut answer).await;
            if answered.is_ok() {
                break answered;
            }
            if left.get().is_some_and(Left::met) {
                spare = None;
                break timeout_at(deadline.into(), answer).await;
            }
            if look_at == deadline {
                break answered;
            }
        },
    };
    let Ok(answered) = answered else {
        let reason = format!("no answer within {:?}", request.request_timeout);
        return Err(Failed::at_once(ErrorCode::Timeout, reason));
    };
    answered.map_err(|error| {
        failure::classify(&error, spare.filter(|_| !left.get().is_some_and(Left::met)))
    })
}

fn build_headers(request: &Request) -> Result<HeaderMap, String> {
    let mut headers = request.headers.clone();
    headers
        .entry(CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static(concat!(
            "postrider/",
            env!("CARGO_PKG_VERSION")
        )));
    for (name, value) in [
        ("webhook-id", request.event_id.to_string()),
        ("webhook-timestamp", request.timestamp.to_string()),
        ("webhook-signature", request.signature.clone()),
        ("webhook-event-type", request.event_type.clone()),
        ("webhook-attempt", request.number.to_string()),
    ] {
        let value = HeaderValue::try_from(value).map_err(|e| format!("header {name}: {e}"))?;
        headers.insert(HeaderName::from_static(name), value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
