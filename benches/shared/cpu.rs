//! Processor time, from `/proc`; zero where there is none.

use std::path::Path;
use std::time::Duration;

/// The unit of `/proc/PID/stat`, which Linux fixes for programs whatever the kernel's own is.
const TICKS_PER_SECOND: u64 = 100;

struct Stat {
    name: String,
    parent: i32,
    own: u64,
    of_ended_children: u64,
}

fn stat(path: &Path) -> Option<Stat> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name is in brackets and may hold anything, brackets too.
    let (head, tail) = text.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<u64>().ok());
    Some(Stat {
        name: head.split_once('(')?.1.to_owned(),
        parent: fields.get(1)?.parse().ok()?,
        own: ticks(11)? + ticks(12)?,
        of_ended_children: ticks(13)? + ticks(14)?,
    })
}

fn duration(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// What a process has used.
pub fn of_process(pid: u32) -> Duration {
    let stat = stat(Path::new(&format!("/proc/{pid}/stat")));
    duration(stat.map_or(0, |s| s.own))
}

/// What a process and all its children have used, ended ones included.
pub fn of_family(pid: i32) -> Duration {
    let mut ticks =
        stat(Path::new(&format!("/proc/{pid}/stat"))).map_or(0, |s| s.own + s.of_ended_children);
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(child) = stat(&entry.path().join("stat")).filter(|s| s.parent == pid) {
            ticks += child.own;
        }
    }
    duration(ticks)
}

/// What the threads of this process whose name begins so have used.
pub fn of_threads(prefix: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let stats = tasks.flatten().filter_map(|t| stat(&t.path().join("stat")));
    duration(
        stats
            .filter(|s| s.name.starts_with(prefix))
            .map(|s| s.own)
            .sum(),
    )
}

/// Processor time as a share of one processor over this time, in percent.
pub fn share(used: Duration, over: Duration) -> f64 {
    100.0 * used.as_secs_f64() / over.as_secs_f64()
}

/// The most memory that a process has had, in bytes.
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}
