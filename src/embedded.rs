//! A private Postgres server in a temporary directory, for `demo`, `dev` and the tests.
//!
//! It listens on a free port of 127.0.0.1 with a random password, and on a socket in its own
//! directory that only its user (and root) can enter.

mod binaries;
mod cluster;
mod watchdog;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rand::Rng;
use tokio_postgres::NoTls;

pub use binaries::{MINIMUM_VERSION, find};
use cluster::{free_port, give, runs, tail};
use watchdog::Watchdog;

/// Why there is no private server.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No server programs were found.
    #[error(
        "no PostgreSQL server found: install one (Debian: apt-get install postgresql), or set POSTRIDER_PG_BIN to the directory of initdb and postgres"
    )]
    NoServer,
    /// Only an old server was found.
    #[error("PostgreSQL {found} in {} is too old: {MINIMUM_VERSION} or newer is needed", dir.display())]
    TooOld {
        /// Where it was found.
        dir: PathBuf,
        /// Its major version.
        found: u32,
    },
    /// We are root, and there is nobody else to run it as.
    #[error("PostgreSQL refuses to run as root, and there is no user postgres or nobody")]
    NoUser,
    /// A file or process could not be handled.
    #[error("the private PostgreSQL cannot be set up: {0}")]
    Io(#[from] std::io::Error),
    /// A program of the server failed.
    #[error("{what} failed:\n{output}")]
    Failed {
        /// What was done.
        what: &'static str,
        /// The end of what it printed or logged.
        output: String,
    },
}

/// A running private server. Dropping it stops it at once and removes its directory; the same
/// happens when this process is killed.
pub struct Embedded {
    dir: PathBuf,
    port: u16,
    password: String,
    user: Option<(u32, u32)>,
    watchdog: Arc<Mutex<Watchdog>>,
}

impl Embedded {
    /// Makes a cluster and starts it with `settings` added to `postgresql.conf`.
    pub async fn start(settings: &[(&str, &str)]) -> Result<Self, EmbeddedError> {
        let own: Vec<_> = settings
            .iter()
            .map(|(k, v)| ((*k).into(), (*v).into()))
            .collect();
        let mut server = on_thread(move || Self::create(own)).await?;
        for _ in 0..3 {
            match server.resume().await {
                // Someone took the free port between our look and the server's.
                Err(EmbeddedError::Failed { output, .. }) if output.contains("could not bind") => {
                    server.port = free_port()?;
                    server.append(&[("port", &server.port.to_string())])?;
                }
                other => return other.map(|()| server),
            }
        }
        server.resume().await.map(|()| server)
    }

    fn create(settings: Vec<(String, String)>) -> Result<Self, EmbeddedError> {
        let bin = binaries::find()?;
        let user = binaries::unprivileged_user()?;
        let mut rng = rand::rng();
        // Short, because a socket's path may have 107 bytes.
        let dir = std::env::temp_dir().join(format!("postrider-{:08x}", rng.random::<u32>()));
        let password = format!("{:032x}", rng.random::<u128>());
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
            .create(&dir)?;
        give(&dir, user)?;
        // From here on the watchdog removes the directory, whatever happens.
        let watchdog = Arc::new(Mutex::new(Watchdog::spawn(&bin, &dir, user)?));
        cluster::initdb(&bin, &dir, user, &password)?;
        let port = free_port()?;
        let server = Self {
            dir,
            port,
            password,
            user,
            watchdog,
        };
        server.append(&[
            ("listen_addresses", "127.0.0.1"),
            ("port", &port.to_string()),
            ("unix_socket_directories", &server.dir.to_string_lossy()),
            ("log_line_prefix", "%m [%p] %a: "),
        ])?;
        let settings: Vec<_> = settings
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        server.append(&settings)?;
        Ok(server)
    }

    /// The URL of a database over TCP, with the password.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgres://postgres:{}@127.0.0.1:{}/{database}",
            self.password, self.port
        )
    }

    /// The URL of a database over the socket; only root and the server's own user can use it.
    #[must_use]
    pub fn socket_url(&self, database: &str) -> String {
        let dir = self
            .dir
            .to_string_lossy()
            .replace('%', "%25")
            .replace('/', "%2F");
        format!("postgres://postgres@{dir}:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data directory.
    #[must_use]
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// The end of the server's log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = std::fs::read(self.dir.join("log")).unwrap_or_default();
        tail(&String::from_utf8_lossy(&log))
    }

    /// Adds settings to `postgresql.conf`; most take effect with [`Embedded::restart`].
    pub fn configure(&self, settings: &[(&str, &str)]) -> Result<(), EmbeddedError> {
        self.append(settings)
    }

    /// Puts a file into the data directory, readable by the server alone.
    pub fn put_file(&self, name: &str, contents: &[u8]) -> Result<PathBuf, EmbeddedError> {
        let path = self.data_dir().join(name);
        std::fs::write(&path, contents)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        give(&path, self.user)?;
        Ok(path)
    }

    /// Starts the server again after a stop, and waits until it accepts connections.
    pub async fn resume(&self) -> Result<(), EmbeddedError> {
        let pid = self.command("start").await?;
        let deadline = Instant::now() + Duration::from_secs(60);
        let url = self.socket_url("postgres");
        loop {
            if let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                drop((client, connection));
                return Ok(());
            }
            if !pid.is_some_and(runs) || Instant::now() > deadline {
                let output = self.log_tail();
                let _ = self.command("immediate").await;
                return Err(EmbeddedError::Failed {
                    what: "starting PostgreSQL",
                    output,
                });
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops the server in good order: sessions are ended, everything is written.
    pub async fn stop_fast(&self) -> Result<(), EmbeddedError> {
        self.command("fast").await.map(drop)
    }

    /// Stops the server as a crash would: the next start recovers.
    pub async fn stop_immediate(&self) -> Result<(), EmbeddedError> {
        self.command("immediate").await.map(drop)
    }

    /// Stops in good order and starts again.
    pub async fn restart(&self) -> Result<(), EmbeddedError> {
        self.stop_fast().await?;
        self.resume().await
    }

    async fn command(&self, command: &'static str) -> Result<Option<i32>, EmbeddedError> {
        let watchdog = Arc::clone(&self.watchdog);
        on_thread(move || {
            let mut watchdog = watchdog.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(watchdog.command(command)?)
        })
        .await
    }

    fn append(&self, settings: &[(&str, &str)]) -> Result<(), EmbeddedError> {
        let path = self.data_dir().join("postgresql.conf");
        let mut file = std::fs::OpenOptions::new().append(true).open(path)?;
        for (key, value) in settings {
            std::io::Write::write_fmt(
                &mut file,
                format_args!("{key} = '{}'\n", value.replace('\'', "''")),
            )?;
        }
        Ok(())
    }
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, EmbeddedError> + Send + 'static,
) -> Result<T, EmbeddedError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(std::io::Error::from)?
}
