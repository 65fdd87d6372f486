//! Finds the Postgres server programs, and the user that may run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::EmbeddedError;

/// The oldest server that Postrider runs on.
pub const MINIMUM_VERSION: u32 = 14;

/// The directory with `initdb` and `postgres`: `POSTRIDER_PG_BIN`, else the newest of what
/// `pg_config`, the usual directories and `PATH` offer.
pub fn find() -> Result<PathBuf, EmbeddedError> {
    if let Some(dir) = std::env::var_os("POSTRIDER_PG_BIN") {
        let dir = PathBuf::from(dir);
        return match version(&dir) {
            Some(found) if found >= MINIMUM_VERSION => Ok(dir),
            Some(found) => Err(EmbeddedError::TooOld { dir, found }),
            None => Err(EmbeddedError::NoServer),
        };
    }
    let newest = candidates()
        .into_iter()
        .filter_map(|dir| version(&dir).map(|found| (found, dir)))
        .max_by_key(|(found, _)| *found);
    match newest {
        Some((found, dir)) if found >= MINIMUM_VERSION => Ok(dir),
        Some((found, dir)) => Err(EmbeddedError::TooOld { dir, found }),
        None => Err(EmbeddedError::NoServer),
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if let Ok(out) = Command::new("pg_config").arg("--bindir").output() {
        dirs.push(PathBuf::from(String::from_utf8_lossy(&out.stdout).trim()));
    }
    for (parent, below) in [
        ("/usr/lib/postgresql", "bin"),
        ("/opt/homebrew/opt", "bin"),
        ("/usr/local/opt", "bin"),
        ("/usr", "bin"),
    ] {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        dirs.extend(entries.map(|e| e.path()).filter_map(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            let ours = parent == "/usr/lib/postgresql" || name.starts_with("pgsql");
            (ours || name.starts_with("postgresql")).then(|| path.join(below))
        }));
    }
    if let Some(path) = std::env::var_os("PATH") {
        dirs.extend(std::env::split_paths(&path));
    }
    dirs
}

/// The major version of the server in `dir`, if a complete one is there.
fn version(dir: &Path) -> Option<u32> {
    if !dir.join("initdb").exists() || !dir.join("postgres").exists() {
        return None;
    }
    let out = Command::new(dir.join("postgres"))
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    major(&String::from_utf8_lossy(&out.stdout))
}

fn major(text: &str) -> Option<u32> {
    let word = text
        .split_whitespace()
        .find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    let digits: String = word.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Postgres refuses to run as root: whom to run it as instead, when we are root.
pub(super) fn unprivileged_user() -> Result<Option<(u32, u32)>, EmbeddedError> {
    if !nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Ok(Some(user)) = nix::unistd::User::from_name(name) {
            return Ok(Some((user.uid.as_raw(), user.gid.as_raw())));
        }
    }
    Err(EmbeddedError::NoUser)
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn versions_are_read_as_distributions_print_them() {
        assert_eq!(
            major("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"),
            Some(15)
        );
        assert_eq!(major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(major("postgres (PostgreSQL) 9.6.1"), Some(9));
        assert_eq!(major("what"), None);
    }
}
