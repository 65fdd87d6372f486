//! What the figures were measured on.

use super::cluster::Cluster;
use super::{Result, table};

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn value_of(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find(|l| l.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processor, memory and what else runs.
pub fn print() {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let unknown = || "unknown".to_owned();
    let processor = value_of(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown);
    let memory = value_of(&read("/proc/meminfo"), "MemTotal").unwrap_or_else(unknown);
    table::line(format_args!(
        "machine   {cores} × {processor}, memory {memory}"
    ));
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().take(3).collect::<Vec<_>>();
    table::line(format_args!(
        "kernel    {}, load before {}",
        read("/proc/sys/kernel/osrelease").trim(),
        load.join(" ")
    ));
    table::line(
        "all of it on this machine: worker, Postgres, receiver, load; loopback; release build",
    );
}

/// The server and the settings that figures depend on.
pub async fn print_server() -> Result<()> {
    let cluster = Cluster::start().await?;
    let sql = "select string_agg(name || ' ' || case when unit = '8kB' then pg_size_pretty(setting::bigint * 8192)
                                                else setting || coalesce(unit, '') end, ', ' order by name)
                 from pg_settings where name in ('server_version', 'fsync', 'synchronous_commit', 'wal_sync_method',
                                                 'shared_buffers', 'max_wal_size', 'autovacuum')";
    let settings: String = cluster.one(sql).await?;
    table::line(format_args!("postgres  {settings}"));
    let data = cluster.data_dir();
    table::line(format_args!("data on   {}", file_system(&data)));
    Ok(())
}

/// A file system in memory makes every fsync free, so it is said.
fn file_system(path: &std::path::Path) -> String {
    let mounts = read("/proc/mounts");
    let on = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (device, at, kind) = (words.next()?, words.next()?, words.next()?);
        path.starts_with(at)
            .then(|| (at.len(), format!("{kind} on {device}")))
    });
    on.max()
        .map_or_else(|| "unknown".to_owned(), |(_, text)| text)
}
