//! The program itself, as a worker process.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::cluster::Cluster;
use super::{Result, cpu};

/// A worker; killed when dropped.
pub struct Worker {
    child: Child,
    pid: u32,
    admin: SocketAddr,
}

impl Worker {
    /// Starts one with the settings it has by itself, but for `more`, and waits until it is registered.
    pub async fn start(cluster: &Cluster, more: &[&str]) -> Result<Self> {
        let before: i64 = cluster
            .one("select count(*) from postrider.workers")
            .await?;
        let worker = Self::spawn(cluster, more)?;
        let registered = format!("select count(*) > {before} from postrider.workers");
        cluster.until(&registered, Duration::from_secs(10)).await?;
        Ok(worker)
    }

    /// Starts one and does not wait.
    pub fn spawn(cluster: &Cluster, more: &[&str]) -> Result<Self> {
        let admin = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["worker", "--allow-network", "127.0.0.0/8", "--log", "error"])
            .args(["--admin-listen", &admin.to_string()])
            .args(more)
            .env("DATABASE_URL", cluster.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().ok_or("the worker ended at once")?;
        Ok(Self { child, pid, admin })
    }

    /// Processor time so far.
    pub fn cpu(&self) -> Duration {
        cpu::of_process(self.pid)
    }

    /// The most memory it has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        cpu::peak_memory(self.pid).unwrap_or_default()
    }

    /// Calls of the database that it has counted, of these kinds or, without any, of all: how many, and how many of
    /// them took over 250 ms.
    pub async fn calls(&self, kinds: &[&str]) -> Result<(f64, f64)> {
        let mut stream = TcpStream::connect(self.admin).await?;
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            .await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let sum = |suffix: &str, bound: &str| -> f64 {
            let name = format!("postrider_db_call_duration_seconds_{suffix}");
            let counts = text.lines().filter(|line| {
                line.starts_with(&name)
                    && line.contains(bound)
                    && (kinds.is_empty()
                        || kinds
                            .iter()
                            .any(|kind| line.contains(&format!("call=\"{kind}\""))))
            });
            counts
                .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
                .sum()
        };
        let all = sum("count", "");
        Ok((all, all - sum("bucket", "le=\"0.25\"")))
    }

    /// As an operator stops it: what is under way finishes, endpoints are released.
    pub async fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.pid)?), Signal::SIGTERM)?;
        let status = tokio::time::timeout(Duration::from_secs(40), self.child.wait()).await??;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the worker ended with {status}").into())
        }
    }
}
