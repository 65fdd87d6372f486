//! The private server: it starts, stops as told, and never outlives its owner.

use std::time::Duration;

use postrider::connect::Database;
use postrider::embedded::Embedded;

use crate::fixtures::eventually;

async fn answer(server: &Embedded) -> i32 {
    let database = Database::new(Some(&server.url("postgres"))).unwrap();
    let client = database.connect().await.unwrap();
    client.query_one("select 41 + 1", &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn it_survives_a_crash_and_leaves_nothing_behind() {
    let server = Embedded::start(&[("fsync", "off")]).await.unwrap();
    assert_eq!(answer(&server).await, 42);
    server.stop_immediate().await.unwrap();
    assert!(
        Database::new(Some(&server.url("postgres")))
            .unwrap()
            .connect()
            .await
            .is_err()
    );
    server.resume().await.unwrap();
    assert_eq!(answer(&server).await, 42);
    server.restart().await.unwrap();
    assert_eq!(answer(&server).await, 42);
    let dir = server.data_dir();
    assert!(dir.exists());
    drop(server);
    assert!(!dir.exists());
}

#[tokio::test]
async fn a_failing_start_shows_the_servers_own_words() {
    let error = Embedded::start(&[("shared_buffers", "nonsense")])
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("shared_buffers"), "{error}");
}

/// Not a test of its own: run in a child by the test below, which kills it.
#[tokio::test]
async fn hold_a_server_until_killed() {
    let Ok(note) = std::env::var("POSTRIDER_TEST_HOLD_SERVER") else {
        return;
    };
    let server = Embedded::start(&[]).await.unwrap();
    std::fs::write(note, server.data_dir().to_string_lossy().as_bytes()).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_owner_takes_its_server_along() {
    let note = std::env::temp_dir().join(format!("postrider-note-{}", std::process::id()));
    let mut child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded::hold_a_server_until_killed"])
        .env("POSTRIDER_TEST_HOLD_SERVER", &note)
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let limit = Duration::from_secs(30);
    let data = eventually(limit, async || {
        std::fs::read_to_string(&note)
            .ok()
            .filter(|text| !text.is_empty())
    })
    .await;
    let data = std::path::PathBuf::from(data);
    let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap();
    let pid = nix::unistd::Pid::from_raw(pid.lines().next().unwrap().parse().unwrap());
    child.kill().await.unwrap();
    eventually(limit, async || {
        (!data.parent().unwrap().exists()).then_some(())
    })
    .await;
    eventually(limit, async || nix::sys::signal::kill(pid, None).err()).await;
    std::fs::remove_file(note).unwrap();
}
