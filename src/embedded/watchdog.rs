//! The small shell that owns the server process.
//!
//! It reads commands from us on a pipe. When the pipe closes, because we ended or were killed, it
//! stops the server and removes the directory: nothing of ours outlives us.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const SCRIPT: &str = r#"
bin=$1 dir=$2 pid=
trap '' INT TERM HUP
stop() {
    if [ -n "$pid" ]; then kill -"$1" "$pid" 2>/dev/null; wait "$pid"; fi
    pid=
}
while read -r command; do
    case $command in
    start) "$bin/postgres" -D "$dir/data" >>"$dir/log" 2>&1 </dev/null & pid=$! ;;
    fast) stop INT ;;
    immediate) stop QUIT ;;
    esac
    echo "${pid:-stopped}"
done
stop QUIT
rm -rf "$dir"
"#;

pub(super) struct Watchdog {
    child: Child,
    /// `None` once closed.
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Watchdog {
    pub fn spawn(bin: &Path, dir: &Path, user: Option<(u32, u32)>) -> std::io::Result<Self> {
        let mut command = as_user("sh", user);
        command
            .arg("-c")
            .arg(SCRIPT)
            .arg("postrider-postgres")
            .args([bin, dir]);
        // A group of its own: Ctrl-C in a terminal is for us, and we stop the server in our order.
        command.current_dir(dir).process_group(0);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn()?;
        let commands = child.stdin.take();
        let answers = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        Ok(Self {
            child,
            commands,
            answers: BufReader::new(answers),
        })
    }

    /// Sends one command; the answer is the server's process id, or `None` when it is stopped.
    pub fn command(&mut self, command: &str) -> std::io::Result<Option<i32>> {
        let pipe = self
            .commands
            .as_mut()
            .ok_or(std::io::ErrorKind::BrokenPipe)?;
        writeln!(pipe, "{command}")?;
        let mut answer = String::new();
        if self.answers.read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(answer.trim().parse().ok())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.child.wait();
    }
}

/// A command that runs as `user`, without our other groups.
pub(super) fn as_user(program: impl AsRef<std::ffi::OsStr>, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}
