//! A lean receiver on a thread of its own: it reads the body, counts, may remember, and answers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use uuid::Uuid;

use super::Result;

/// The receiver's thread, for [`super::cpu::of_threads`].
pub const THREAD: &str = "receiver";

/// A request: which endpoint, which event, when its body was here.
#[derive(Clone, Copy)]
pub struct Arrival {
    pub endpoint: u32,
    pub event: Uuid,
    pub at: Instant,
}

#[derive(Default)]
struct Memory {
    arrivals: Vec<Arrival>,
    /// By endpoint: requests open now, and the most there were.
    open: HashMap<u32, (u32, u32)>,
}

type Delay = Box<dyn Fn(u32) -> Duration + Send + Sync>;

struct Shared {
    delay: Delay,
    remembers: bool,
    count: AtomicU64,
    memory: Mutex<Memory>,
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> std::result::Result<Response<Empty<Bytes>>, hyper::Error> {
        let (head, mut body) = request.into_parts();
        while let Some(frame) = body.frame().await {
            frame?;
        }
        let endpoint = head
            .uri
            .path()
            .get(1..)
            .and_then(|p| p.parse().ok())
            .unwrap_or(0);
        if self.remembers {
            let event = head
                .headers
                .get("webhook-id")
                .and_then(|v| Uuid::try_parse_ascii(v.as_bytes()).ok());
            let mut memory = self.memory();
            memory.arrivals.push(Arrival {
                endpoint,
                event: event.unwrap_or_default(),
                at: Instant::now(),
            });
            let (open, most) = memory.open.entry(endpoint).or_default();
            *open += 1;
            *most = (*most).max(*open);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        let delay = (self.delay)(endpoint);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if self.remembers {
            if let Some((open, _)) = self.memory().open.get_mut(&endpoint) {
                *open -= 1;
            }
        }
        Ok(Response::new(Empty::new()))
    }
}

/// The receiver.
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Receiver {
    /// Answers at once and only counts.
    pub fn counting() -> Result<Self> {
        Self::start(false, |_| Duration::ZERO)
    }

    /// Answers endpoint n after `delay(n)` and remembers every request.
    pub fn remembering(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Result<Self> {
        Self::start(true, delay)
    }

    fn start(
        remembers: bool,
        delay: impl Fn(u32) -> Duration + Send + Sync + 'static,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            delay: Box::new(delay),
            remembers,
            count: AtomicU64::new(0),
            memory: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let serving = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        _ = accept(listener, serving) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            address,
            shared,
            stop: Some(stop),
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Endpoint n is at this, `/` and n.
    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// All that is remembered, in order of arrival.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.memory().arrivals.clone()
    }

    /// Forgets all arrivals so far.
    pub fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut self.shared.memory().arrivals)
    }

    /// The most requests that an endpoint had open.
    pub fn most_open(&self, endpoint: u32) -> u32 {
        self.shared.memory().open.get(&endpoint).map_or(0, |o| o.1)
    }

    /// Requests open now.
    pub fn open(&self) -> u32 {
        self.shared.memory().open.values().map(|o| o.0).sum()
    }

    /// Waits until this many have arrived since the start.
    pub async fn reached(&self, count: u64, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        while self.count() < count {
            if Instant::now() > deadline {
                return Err(
                    format!("{} of {count} requests came within {limit:?}", self.count()).into(),
                );
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

async fn accept(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
) -> std::io::Result<Infallible> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| shared.answer(request));
            // A worker closes its connections whenever it likes.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}
