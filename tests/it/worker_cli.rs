//! `postrider worker`: starting, refusing to start, and what it shows.

use std::collections::HashSet;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::process::Process;
use crate::fixtures::receiver::Receiver;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

async fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// Status and body; none while nobody listens.
async fn get(address: &str, path: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    tokio::time::timeout(Duration::from_secs(5), read)
        .await
        .ok()?
        .ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

async fn wait_for_status(address: &str, path: &str, status: u16) {
    eventually(LIMIT, async || {
        let answer = get(address, path).await;
        answer.filter(|(found, _)| *found == status)
    })
    .await;
}

#[tokio::test]
async fn g31_ten_workers_migrate_an_empty_database_and_deliver() {
    let db = TestDb::empty().await;
    let receiver = Receiver::ok().await;
    let args = ["worker", "--migrate", "--allow-network", "127.0.0.0/8"];
    let mut workers: Vec<Process> = (0..10)
        .map(|_| Process::start(&args, &[("DATABASE_URL", db.url())]))
        .collect();
    let client = db.connect().await;
    let ready = async || {
        let sql = "select count(*) from postrider.workers";
        let row = client.query_one(sql, &[]).await.ok()?;
        (row.get::<_, i64>(0) == 10).then_some(())
    };
    if tokio::time::timeout(LIMIT, eventually(LIMIT * 2, ready))
        .await
        .is_err()
    {
        let said: Vec<_> = workers.iter().map(Process::output).collect();
        panic!("not all are ready: {said:#?}");
    }
    let url = receiver.url("/in");
    client
        .batch_execute(&format!(
            "update postrider.settings set allow_http = true;
             select postrider.create_endpoint(url => '{url}', rate => 1000, burst => 100);
             select postrider.emit_event('a', '{{}}'::text) from generate_series(1, 50)"
        ))
        .await
        .unwrap();
    let requests = receiver.wait_for_count(50, LIMIT).await;
    let ids: HashSet<_> = requests.iter().map(|r| r.id()).collect();
    assert_eq!((ids.len(), requests.len()), (50, 50));
    for worker in &workers {
        worker.signal(nix::sys::signal::Signal::SIGTERM);
    }
    for worker in &mut workers {
        let status = worker.wait(LIMIT).await;
        assert_eq!(status.code(), Some(0), "{}", worker.output());
    }
    let left: i64 = client
        .query_one("select count(*) from postrider.workers", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_missing_or_old_schema_is_refused_with_the_command_to_run() {
    let empty = TestDb::empty().await;
    let old = TestDb::new().await;
    let client = old.connect().await;
    let age = "update postrider.install set release = '{0,0,1}', digest = 'old'";
    client.batch_execute(age).await.unwrap();
    for db in [&empty, &old] {
        let env = [("DATABASE_URL", db.url())];
        let (status, output) = Process::run(&["worker"], &env).await;
        assert!(!status.success(), "{output}");
        assert!(output.contains("postrider migrate"), "{output}");
        let mut worker = Process::start(&["worker", "--migrate"], &env);
        let client = db.connect().await;
        eventually(LIMIT, async || {
            let sql = "select count(*) from postrider.workers";
            let row = client.query_one(sql, &[]).await.ok()?;
            (row.get::<_, i64>(0) == 1).then_some(())
        })
        .await;
        worker.signal(nix::sys::signal::Signal::SIGTERM);
        let status = worker.wait(LIMIT).await;
        assert_eq!(status.code(), Some(0), "{}", worker.output());
    }
}

/// A server that is not there yet is waited for; a database that is not there is a person's mistake.
#[tokio::test]
async fn a_worker_waits_for_a_server_and_not_for_a_database() {
    let db = TestDb::new().await;
    let (user, rest) = db.url().split_once('@').unwrap();
    let (host, name) = rest.split_once('/').unwrap();
    let missing = format!("{user}@{host}/no_such_database");
    let (status, output) = Process::run(&["worker"], &[("DATABASE_URL", &missing)]).await;
    assert_eq!(status.code(), Some(1), "{output}");

    let (front, admin) = (free_address().await, free_address().await);
    let url = format!("{user}@{front}/{name}");
    let args = ["worker", "--admin-listen", &admin];
    let mut worker = Process::start(&args, &[("DATABASE_URL", &url)]);
    worker.wait_for_output("trying again", LIMIT).await;
    wait_for_status(&admin, "/livez", 200).await;
    wait_for_status(&admin, "/readyz", 503).await;
    let listener = tokio::net::TcpListener::bind(&front).await.unwrap();
    let to = host.to_owned();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let mut far = tokio::net::TcpStream::connect(&to).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
        }
    });
    wait_for_status(&admin, "/readyz", 200).await;
    worker.signal(nix::sys::signal::Signal::SIGTERM);
    let status = worker.wait(LIMIT).await;
    assert_eq!(status.code(), Some(0), "{}", worker.output());
}

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let newer = "update postrider.install set release = '{99,0,0}', oldest_worker = '{99,0,0}'";
    client.batch_execute(newer).await.unwrap();
    for args in [&["worker"][..], &["worker", "--migrate"]] {
        let (status, output) = Process::run(args, &[("DATABASE_URL", db.url())]).await;
        assert!(!status.success(), "{output}");
        assert!(output.contains("99.0.0"), "{output}");
    }
}

/// A bad value stops the start and is named, rather than being ignored.
#[tokio::test]
async fn g25_bad_options_are_refused() {
    let db = TestDb::new().await;
    for (args, named) in [
        (["--allow-network", "10.0.0.0/33"], "10.0.0.0/33"),
        (["--allow-network", "127.0.0.0/8,10.0.0.x"], "10.0.0.x"),
        (["--allow-network", " 127.0.0.0/8"], "127.0.0.0/8"),
        (["--lease", "1s"], "lease"),
        (["--lease", "soon"], "soon"),
        (["--max-in-flight", "0"], "max-in-flight"),
        (["--poll-interval", "0s"], "poll-interval"),
    ] {
        let args = [&["worker"][..], &args].concat();
        let (status, output) = Process::run(&args, &[("DATABASE_URL", db.url())]).await;
        assert!(!status.success(), "{args:?}: {output}");
        assert!(output.contains(named), "{args:?}: {output}");
    }
}

#[tokio::test]
async fn health_and_metrics_say_how_it_is() {
    let world =
        World::with_server(|_, nth| Reply::status(if nth.of_path == 1 { 500 } else { 200 })).await;
    let endpoint = world.endpoint("/secret-path", "").await;
    let address = free_address().await;
    let worker = world.process(&["--admin-listen", &address]);
    wait_for_status(&address, "/readyz", 200).await;
    wait_for_status(&address, "/livez", 200).await;
    let event = world.emit("a").await;
    world.wait_for_status(event, endpoint, "delivered").await;
    let (status, metrics) = get(&address, "/metrics").await.unwrap();
    assert_eq!(status, 200);
    let samples: Vec<_> = metrics.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(samples.len() > 5, "{metrics}");
    for sample in &samples {
        assert!(sample.starts_with("postrider_"), "{sample}");
        assert!(!sample.contains("secret-path"), "{sample}");
        assert!(!sample.contains("endpoint_id"), "{sample}");
    }
    // Both attempts are in there somewhere.
    let counted = |outcome: &str| {
        let has = |l: &&&str| l.contains("attempts") && l.contains(outcome) && l.ends_with(" 1");
        samples.iter().filter(has).count()
    };
    assert!(
        counted("delivered") > 0 && counted("failed") > 0,
        "{metrics}"
    );
    assert_eq!(get(&address, "/elsewhere").await.unwrap().0, 404);

    let server = world.server.as_ref().unwrap();
    server.stop_fast().await.unwrap();
    wait_for_status(&address, "/readyz", 503).await;
    let (alive, _) = get(&address, "/livez").await.unwrap();
    assert_eq!(
        alive, 200,
        "a database that is gone is no reason to restart"
    );
    server.resume().await.unwrap();
    wait_for_status(&address, "/readyz", 200).await;
    drop(worker);
}
