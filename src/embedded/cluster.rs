//! Making the cluster's files, and looking at its process.

use std::path::Path;
use std::process::Stdio;

use super::EmbeddedError;
use super::watchdog::as_user;

pub(super) fn give(path: &Path, user: Option<(u32, u32)>) -> std::io::Result<()> {
    match user {
        Some((uid, gid)) => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        None => Ok(()),
    }
}

/// Whether the server still runs; one that ended stays a zombie until the watchdog waits for it.
pub(super) fn runs(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z'),
        Err(_) => nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok(),
    }
}

pub(super) fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?
        .local_addr()?
        .port())
}

pub(super) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

pub(super) fn initdb(
    bin: &Path,
    dir: &Path,
    user: Option<(u32, u32)>,
    password: &str,
) -> Result<(), EmbeddedError> {
    let pwfile = dir.join("pw");
    std::fs::write(&pwfile, password)?;
    give(&pwfile, user)?;
    let mut output = String::new();
    // C.UTF-8 is not everywhere; C sorts the same.
    for locale in ["C.UTF-8", "C"] {
        let out = as_user(bin.join("initdb"), user)
            .args([
                "--no-sync",
                "-U",
                "postgres",
                "-E",
                "UTF8",
                "-A",
                "scram-sha-256",
            ])
            .args(["--auth-local=trust", &format!("--locale={locale}")])
            .arg("--pwfile")
            .arg(&pwfile)
            .arg("-D")
            .arg(dir.join("data"))
            .current_dir(dir)
            .stdin(Stdio::null())
            .output()?;
        if out.status.success() {
            std::fs::remove_file(&pwfile)?;
            return Ok(());
        }
        output = tail(&String::from_utf8_lossy(&[out.stdout, out.stderr].concat()));
    }
    Err(EmbeddedError::Failed {
        what: "initdb",
        output,
    })
}
