//! Connections to Postgres: one place that knows the address, TLS and the time limits.

mod params;
mod strip;
mod tls;

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime};
use futures_util::{StreamExt, stream};
use postgres_native_tls::{MakeTlsConnector, TlsStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::config::Host;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Notification, Socket};

/// Why there is no connection. No variant carries a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Neither an address nor any `PG*` variable was given.
    #[error(
        "no database is given: set DATABASE_URL to postgres://user@host:5432/database, or set PGHOST, PGUSER and PGDATABASE"
    )]
    NoAddress,
    /// The address cannot be read.
    #[error(
        "the database address cannot be read: {0}; write postgres://user@host:5432/database or host=… user=… dbname=…"
    )]
    Address(String),
    /// TLS cannot be set up on our side.
    #[error("TLS to the database cannot be set up: {0}")]
    Tls(String),
    /// The server did not answer in time.
    #[error(
        "{target} did not answer within {limit:?}: is the host right, and reachable from here?"
    )]
    TimedOut {
        /// Where the connection was meant to go.
        target: String,
        /// The limit, `connect_timeout` of the address.
        limit: Duration,
    },
    /// The server cannot be reached, or refused.
    #[error("cannot connect to {target}: {reason}{advice}")]
    Refused {
        /// Where the connection was meant to go.
        target: String,
        /// What the server or the network said.
        reason: String,
        /// What to do about it, with its own punctuation; may be empty.
        advice: &'static str,
        /// The error as the driver gave it.
        #[source]
        source: Box<tokio_postgres::Error>,
    },
    /// The pool cannot be built.
    #[error("the connection pool cannot be built: {0}")]
    Pool(String),
}

/// A Postgres database: where it is and how to connect to it.
#[derive(Clone)]
pub struct Database {
    config: Config,
    tls: MakeTlsConnector,
}

impl ConnectError {
    /// Whether the same may work later without anybody's doing: the server starts, stops, is full, or is not
    /// reachable just now.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::Refused { source, .. } => is_passing(source),
            Self::NoAddress | Self::Address(_) | Self::Tls(_) | Self::Pool(_) => false,
        }
    }
}

/// The same of what the driver says, also of a statement: its connection may be gone.
#[must_use]
pub fn is_passing(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => {
            code.code().starts_with("08")
                || matches!(
                    *code,
                    SqlState::CANNOT_CONNECT_NOW
                        | SqlState::TOO_MANY_CONNECTIONS
                        | SqlState::ADMIN_SHUTDOWN
                        | SqlState::CRASH_SHUTDOWN
                )
        }
        None => {
            let mut causes =
                std::iter::successors(std::error::Error::source(error), |e| e.source());
            error.is_closed() || causes.any(<dyn std::error::Error>::is::<std::io::Error>)
        }
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Database").field(&self.target()).finish()
    }
}

impl Database {
    /// Reads a URL or `key=value` pairs; what they leave open comes from the `PG*` environment, and
    /// everything does when `address` is `None`.
    ///
    /// `sslmode` and `sslrootcert` mean what libpq means by them, with one difference: `verify-ca` and
    /// `verify-full` without `sslrootcert` trust the system's authorities.
    pub fn new(address: Option<&str>) -> Result<Self, ConnectError> {
        let env = |key: &str| std::env::var(key).ok().filter(|v| !v.is_empty());
        let (config, tls) = params::read(address, &env)?;
        let tls = tls::connector(&tls)?;
        Ok(Self {
            config,
            tls: MakeTlsConnector::new(tls),
        })
    }

    /// The same database under another `application_name`.
    #[must_use]
    pub fn named(&self, application_name: &str) -> Self {
        let mut other = self.clone();
        other.config.application_name(application_name);
        other
    }

    /// `user@host:port/database`, for messages.
    #[must_use]
    pub fn target(&self) -> String {
        let ports = self.config.get_ports();
        let port = |i: usize| ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        let host = |(i, host): (usize, &Host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(i)),
            Host::Unix(path) => format!("{}:{}", path.display(), port(i)),
        };
        let mut hosts: Vec<String> = self
            .config
            .get_hosts()
            .iter()
            .enumerate()
            .map(host)
            .collect();
        if hosts.is_empty() {
            let addrs = self.config.get_hostaddrs().iter().enumerate();
            hosts = addrs
                .map(|(i, addr)| format!("{addr}:{}", port(i)))
                .collect();
        }
        let user = self
            .config
            .get_user()
            .map(|u| format!("{u}@"))
            .unwrap_or_default();
        let dbname = self
            .config
            .get_dbname()
            .map(|d| format!("/{d}"))
            .unwrap_or_default();
        format!("{user}{}{dbname}", hosts.join(","))
    }

    /// Opens a connection, driven by a task of its own until the client is dropped.
    pub async fn connect(&self) -> Result<Client, ConnectError> {
        let (client, connection) = self.open().await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = %explain(&error), "database connection ended");
            }
        });
        Ok(client)
    }

    /// Opens a connection for `LISTEN`. It is read all the time, so notifications never pile up in the
    /// server; the receiver ends when the connection does.
    pub async fn connect_listening(
        &self,
    ) -> Result<(Client, UnboundedReceiver<Notification>), ConnectError> {
        let (client, mut connection) = self.open().await?;
        let (sender, receiver) = unbounded_channel();
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(message) = messages.next().await {
                match message {
                    // Whoever stopped receiving may still use the client, so reading goes on.
                    Ok(AsyncMessage::Notification(hint)) => drop(sender.send(hint)),
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(error = %explain(&error), "listening connection ended");
                        break;
                    }
                }
            }
        });
        Ok((client, receiver))
    }

    /// A pool of at most `size` connections, opened when needed.
    pub fn pool(&self, size: usize) -> Result<Pool, ConnectError> {
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let manager = Manager::from_config(self.config.clone(), self.tls.clone(), recycling);
        Pool::builder(manager)
            .max_size(size)
            .runtime(Runtime::Tokio1)
            // What a session has learnt (plans, where outbox begins) is of use to the next call.
            .queue_mode(QueueMode::Lifo)
            .create_timeout(Some(self.limit()))
            .build()
            .map_err(|e| ConnectError::Pool(e.to_string()))
    }

    fn limit(&self) -> Duration {
        self.config
            .get_connect_timeout()
            .copied()
            .unwrap_or(Duration::from_secs(5))
    }

    /// The driver's own limit ends with the TCP handshake; a server that then stays silent would hold
    /// us for ever, so one clock runs over everything, once per host.
    async fn open(&self) -> Result<(Client, Connection<Socket, TlsStream<Socket>>), ConnectError> {
        let hosts = self
            .config
            .get_hosts()
            .len()
            .max(self.config.get_hostaddrs().len())
            .max(1);
        let limit = self.limit() * u32::try_from(hosts).unwrap_or(1);
        match tokio::time::timeout(limit, self.config.connect(self.tls.clone())).await {
            Ok(Ok(pair)) => Ok(pair),
            Ok(Err(source)) => Err(ConnectError::Refused {
                target: self.target(),
                reason: explain(&source),
                advice: advice(&source),
                source: Box::new(source),
            }),
            Err(_) => Err(ConnectError::TimedOut {
                target: self.target(),
                limit,
            }),
        }
    }
}

/// What went wrong, with the causes that the driver's own text leaves out.
#[must_use]
pub fn explain(error: &tokio_postgres::Error) -> String {
    if let Some(db) = error.as_db_error() {
        let extra = db
            .detail()
            .or(db.hint())
            .map(|t| format!(" ({t})"))
            .unwrap_or_default();
        return format!("{}{extra}", db.message());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

fn advice(error: &tokio_postgres::Error) -> &'static str {
    match error.code() {
        Some(c) if *c == SqlState::INVALID_PASSWORD => "; check the user and the password",
        Some(c) if *c == SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "; check the user, sslmode, and the server's pg_hba.conf"
        }
        Some(c) if *c == SqlState::INVALID_CATALOG_NAME => "; create it, or name another database",
        Some(c) if *c == SqlState::TOO_MANY_CONNECTIONS => "; raise max_connections, or lower ours",
        Some(_) => "",
        None if error.to_string().contains("TLS") => "; check sslmode and sslrootcert",
        None => "; is the server running there?",
    }
}
