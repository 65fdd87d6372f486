//! The fixture that runs programs.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::fixtures::process::Process;

#[tokio::test]
async fn it_sees_output_and_sends_signals() {
    let script = "trap 'echo bye; exit 3' TERM; echo $GREETING; while :; do sleep 0.01; done";
    let limit = Duration::from_secs(10);
    let mut process = Process::start_program("sh", &["-c", script], &[("GREETING", "hello")]);
    process.wait_for_output("hello", limit).await;
    process.signal(Signal::SIGSTOP);
    process.signal(Signal::SIGCONT);
    process.signal(Signal::SIGTERM);
    assert_eq!(process.wait(limit).await.code(), Some(3));
    assert_eq!(process.output(), "hello\nbye\n");
}
