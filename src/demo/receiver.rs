//! The receiver: an HTTP server on loopback that remembers every request and answers as its path says.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

/// Seconds that the 429 asks for.
pub const RETRY_AFTER_S: u64 = 5;

/// A request as the receiver saw it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// When its head was here.
    pub arrived: Instant,
    /// Right before the answer was handed over for writing.
    pub answered: Option<Instant>,
    /// The path without its slash: the endpoint's name.
    pub endpoint: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as it came.
    pub body: Bytes,
    /// The status of the answer.
    pub status: u16,
}

impl Seen {
    /// A header's value; empty if it is absent or no text.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
    }

    /// `Webhook-Id`, if it is an event's id.
    #[must_use]
    pub fn event(&self) -> Option<Uuid> {
        self.header("webhook-id").parse().ok()
    }

    /// `Webhook-Attempt`; 0 if it is no number.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.header("webhook-attempt").parse().unwrap_or_default()
    }

    /// Whether the answer was a 2xx.
    #[must_use]
    pub fn accepted(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// What the receiver does at a path.
#[derive(Clone, Debug)]
pub enum Answer {
    /// 200 at once.
    Accept,
    /// 200 after this long.
    Slow(Duration),
    /// 422 at once.
    Refuse,
    /// The specification's.
    Script(Arc<Script>),
}

/// The specification's receiver: the first event it meets gets 500, then 429, then 200; the others,
/// which queue behind it, get 200.
#[derive(Debug, Default)]
pub struct Script {
    first: OnceLock<String>,
    times: Mutex<u32>,
    /// The second attempt is here, and waits for its answer.
    pub second: Notify,
    /// The queue behind the second attempt stands: it may be answered.
    pub queued: Notify,
}

impl Script {
    async fn answer(&self, webhook_id: &str) -> StatusCode {
        if self.first.get_or_init(|| webhook_id.to_owned()) != webhook_id {
            return StatusCode::OK;
        }
        let time = {
            let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
            *times += 1;
            *times
        };
        match time {
            1 => StatusCode::INTERNAL_SERVER_ERROR,
            2 => {
                self.second.notify_one();
                let _ = tokio::time::timeout(Duration::from_secs(8), self.queued.notified()).await;
                StatusCode::TOO_MANY_REQUESTS
            }
            _ => StatusCode::OK,
        }
    }
}

/// The running receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Receiver {
    /// Listens on a free port of 127.0.0.1; `told` gets each request once it is answered.
    pub async fn start(
        answers: HashMap<&'static str, Answer>,
        told: UnboundedSender<Seen>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let receiver = Self {
            address: listener.local_addr()?,
            seen: Arc::default(),
        };
        let answers = Arc::new(answers);
        let seen = Arc::clone(&receiver.seen);
        tokio::spawn(serve(listener, move |arrived, request| {
            let (answers, seen, told) = (Arc::clone(&answers), Arc::clone(&seen), told.clone());
            async move { respond(arrived, request, &answers, &seen, &told).await }
        }));
        Ok(receiver)
    }

    /// The URL of an endpoint.
    #[must_use]
    pub fn url(&self, endpoint: &str) -> String {
        format!("http://{}/{endpoint}", self.address)
    }

    /// Everything seen so far, in the order of arrival.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        let mut seen = lock(&self.seen).clone();
        seen.sort_by_key(|s| s.arrived);
        seen
    }
}

async fn respond(
    arrived: Instant,
    request: Request<Incoming>,
    answers: &HashMap<&'static str, Answer>,
    seen: &Mutex<Vec<Seen>>,
    told: &UnboundedSender<Seen>,
) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let endpoint = head.uri.path().trim_start_matches('/').to_owned();
    let answer = answers.get(endpoint.as_str());
    // Noted before anything is waited for: a request counts even if it never gets its answer.
    let index = {
        let mut seen = lock(seen);
        seen.push(Seen {
            arrived,
            answered: None,
            endpoint,
            headers: head.headers,
            body: Bytes::new(),
            status: 0,
        });
        seen.len() - 1
    };
    let body = body
        .collect()
        .await
        .map(|b| b.to_bytes())
        .unwrap_or_default();
    let id = {
        let mut seen = lock(seen);
        seen[index].body = body;
        seen[index].header("webhook-id").to_owned()
    };
    let status = match answer {
        Some(Answer::Accept) => StatusCode::OK,
        Some(Answer::Slow(time)) => {
            tokio::time::sleep(*time).await;
            StatusCode::OK
        }
        Some(Answer::Refuse) => StatusCode::UNPROCESSABLE_ENTITY,
        Some(Answer::Script(script)) => script.answer(&id).await,
        None => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    if status == StatusCode::TOO_MANY_REQUESTS {
        let value = HeaderValue::from(RETRY_AFTER_S);
        response.headers_mut().insert(RETRY_AFTER, value);
    }
    let done = {
        let mut seen = lock(seen);
        seen[index].status = status.as_u16();
        seen[index].answered = Some(Instant::now());
        seen[index].clone()
    };
    let _ = told.send(done);
    response
}

fn lock(seen: &Mutex<Vec<Seen>>) -> std::sync::MutexGuard<'_, Vec<Seen>> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves HTTP/1.1, a task per connection; `handle` is told when the request's head was here.
pub async fn serve<H, F>(listener: TcpListener, handle: H)
where
    H: Fn(Instant, Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Full<Bytes>>> + Send,
{
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let handle = handle.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = handle(Instant::now(), request);
                async move { Ok::<_, std::convert::Infallible>(response.await) }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
