//! Name lookups: one per host at a time, each on a thread of its own, and few of them.
//!
//! The system's resolver blocks a thread for as long as it likes, and nothing ends it. So hosts whose last
//! lookup took long, and hosts that were never looked up, get a part of the threads only: dead names, however
//! many, leave room for the names that are known to work. Answers are shared by those who wait for them, and
//! kept for nobody.

use std::{
    collections::HashMap,
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Most lookups at once.
const THREADS: usize = 48;
/// Most of them for hosts not known to be quick.
const UNPROVEN: usize = 32;
/// Most of those for hosts known to be slow.
const SLOW: usize = 16;
/// A lookup that took longer makes its host a slow one.
const QUICK: Duration = Duration::from_secs(1);
/// Most hosts whose last lookup is remembered.
const REMEMBERED: usize = 10_000;

type Find = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Finds the addresses of a host, whatever their port. It may block.
#[derive(Clone)]
pub struct Resolver(Arc<Find>);

impl Resolver {
    /// One that asks `find`.
    pub fn new(find: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl Default for Resolver {
    /// The system's.
    fn default() -> Self {
        Self::new(|host| (host, 0).to_socket_addrs().map(Vec::from_iter))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Where a lookup stands.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// There is no thread for it yet.
    Waiting,
    Running,
    Done(Result<Vec<SocketAddr>, String>),
}

/// How long the last lookup of a host took.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Quick,
    Slow,
}

struct Host {
    known: Known,
    lookup: Option<watch::Sender<Stage>>,
}

/// All lookups of a worker. Clones share everything.
#[derive(Clone)]
pub(super) struct Lookups(Arc<Inner>);

struct Inner {
    resolver: Resolver,
    threads: Arc<Semaphore>,
    unproven: Arc<Semaphore>,
    slow: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Host>>,
}

impl Inner {
    fn hosts(&self) -> MutexGuard<'_, HashMap<String, Host>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Always in this order: whoever holds a thread waits for nothing.
    async fn permits(&self, known: Known) -> Option<Vec<OwnedSemaphorePermit>> {
        let lanes: &[_] = match known {
            Known::Quick => &[&self.threads],
            Known::Nothing => &[&self.unproven, &self.threads],
            Known::Slow => &[&self.slow, &self.unproven, &self.threads],
        };
        let mut permits = Vec::new();
        for lane in lanes {
            permits.push(Arc::clone(lane).acquire_owned().await.ok()?);
        }
        Some(permits)
    }
}

impl Lookups {
    pub(super) fn new(resolver: Resolver) -> Self {
        let permits = |n| Arc::new(Semaphore::new(n));
        Self(Arc::new(Inner {
            resolver,
            threads: permits(THREADS),
            unproven: permits(UNPROVEN),
            slow: permits(SLOW),
            hosts: Mutex::default(),
        }))
    }

    /// The lookup of this host: the one under way, else a new one.
    ///
    /// It goes on when its receivers are dropped: a place in the line is kept while requests come and go, and
    /// a thread until the resolver lets it go.
    pub(super) fn find(&self, host: &str) -> watch::Receiver<Stage> {
        let mut hosts = self.0.hosts();
        if hosts.len() >= REMEMBERED {
            let mut keep = false;
            hosts.retain(|_, host| {
                keep = !keep;
                keep || host.lookup.is_some()
            });
        }
        let entry = hosts.entry(host.to_owned()).or_insert(Host {
            known: Known::Nothing,
            lookup: None,
        });
        if let Some(under_way) = &entry.lookup {
            return under_way.subscribe();
        }
        let (stage, receiver) = watch::channel(Stage::Waiting);
        entry.lookup = Some(stage.clone());
        tokio::spawn(start(self.0.clone(), host.to_owned(), entry.known, stage));
        receiver
    }
}

async fn start(inner: Arc<Inner>, host: String, known: Known, stage: watch::Sender<Stage>) {
    let Some(permits) = inner.permits(known).await else {
        return;
    };
    {
        // Nobody can join while this is decided.
        let mut hosts = inner.hosts();
        if stage.receiver_count() == 0 {
            if let Some(entry) = hosts.get_mut(&host) {
                entry.lookup = None;
            }
            return;
        }
        stage.send_replace(Stage::Running);
    }
    let lookup = Lookup {
        inner,
        host,
        began: Instant::now(),
        stage,
        found: Err("the resolver did not answer".to_owned()),
        _permits: permits,
    };
    // Not one of the runtime's threads: those are waited for when the process ends.
    let spawned = std::thread::Builder::new()
        .name("lookup".to_owned())
        .spawn(move || {
            let mut lookup = lookup;
            let found = (lookup.inner.resolver.0)(&lookup.host);
            lookup.found = found.map_err(|e| e.to_string());
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread for a name lookup");
    }
}

/// A lookup under way. Its end is told when it is dropped, whatever the reason.
struct Lookup {
    inner: Arc<Inner>,
    host: String,
    began: Instant,
    stage: watch::Sender<Stage>,
    found: Result<Vec<SocketAddr>, String>,
    _permits: Vec<OwnedSemaphorePermit>,
}

impl Drop for Lookup {
    fn drop(&mut self) {
        let known = match &self.found {
            _ if self.began.elapsed() <= QUICK => Known::Quick,
            // One lost packet does not make it a dead name.
            Ok(_) => Known::Nothing,
            Err(_) => Known::Slow,
        };
        let mut hosts = self.inner.hosts();
        hosts.insert(
            self.host.clone(),
            Host {
                known,
                lookup: None,
            },
        );
        let found = std::mem::replace(&mut self.found, Ok(Vec::new()));
        self.stage.send_replace(Stage::Done(found));
    }
}

#[cfg(test)]
mod tests;
