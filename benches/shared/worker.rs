//! The program itself, as a worker process.

use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use super::cluster::Cluster;
use super::{Result, cpu};

/// A worker; killed when dropped.
pub struct Worker {
    child: Child,
    pid: u32,
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
        let child = Command::new(env!("CARGO_BIN_EXE_postrider"))
            .args(["worker", "--allow-network", "127.0.0.0/8", "--log", "error"])
            .args(more)
            .env("DATABASE_URL", cluster.url())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().ok_or("the worker ended at once")?;
        Ok(Self { child, pid })
    }

    /// Processor time so far.
    pub fn cpu(&self) -> Duration {
        cpu::of_process(self.pid)
    }

    /// The most memory it has had, in bytes.
    pub fn peak_memory(&self) -> u64 {
        cpu::peak_memory(self.pid).unwrap_or_default()
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
