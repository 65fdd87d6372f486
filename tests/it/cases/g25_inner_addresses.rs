//! G25: an endpoint's URL must not lead a worker into its own network, however the address is written and
//! whatever its name resolves to by the time a request is made: no connection, and a final outcome that says why.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider::delivery::Resolver;
use tokio::net::TcpListener;

use crate::fixtures::http::Reply;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::process::Process;
use crate::fixtures::world::{Delivery, World};

async fn endpoint_at(world: &World, url: &str) -> i64 {
    let sql = "select endpoint_id from postrider.create_endpoint(url => $1, policy => 'quick')";
    world.one(sql, &[&url]).await
}

fn assert_refused(ended: &Delivery, url: &str) {
    assert_eq!((ended.attempts, ended.failures), (1, 1), "{url}: {ended:?}");
    assert!(
        ended.reason.as_ref().unwrap().contains("address"),
        "{url}: {ended:?}"
    );
    assert!(
        ended
            .last_error
            .as_ref()
            .unwrap()
            .contains("is not an address that requests may go to"),
        "{url}: {ended:?}"
    );
}

/// Counts connections to this address.
async fn counting(address: SocketAddr) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(address).await.unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok(_open) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
        }
    });
    connections
}

/// Without `--allow-network` nothing inside is connected to, by address or by name.
#[tokio::test]
async fn g25_a_refused_address_is_never_connected_to() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let port = world.receiver.address().port();
    let by_v6 = TcpListener::bind(("::1", port)).await;
    let mut endpoints = Vec::new();
    for host in [
        "127.0.0.1",
        "127.1.2.3",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "10.0.0.5",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "localhost",
        "inner.test",
        "mapped.test",
        "metadata.test",
        "one-of-many.test",
    ] {
        let url = format!("http://{host}:{port}/in");
        endpoints.push((endpoint_at(&world, &url).await, url));
    }
    world.worker_with(|o| {
        o.allow_networks.clear();
        o.resolver = Resolver::new(|host| {
            let found: &[&str] = match host {
                "localhost" => &["127.0.0.1", "::1"],
                "inner.test" => &["127.0.0.1"],
                "mapped.test" => &["::ffff:127.0.0.1"],
                "metadata.test" => &["169.254.169.254"],
                // Whichever comes first.
                "one-of-many.test" => &["8.8.8.8", "127.0.0.1", "9.9.9.9"],
                other => panic!("{other} is an address, and was looked up"),
            };
            let address = |a: &&str| SocketAddr::new(a.parse::<IpAddr>().unwrap(), 0);
            Ok(found.iter().map(address).collect())
        });
    });
    let event = world.emit("a").await;
    for (endpoint, url) in endpoints {
        assert_refused(
            &world.wait_for_status(event, endpoint, "rejected").await,
            &url,
        );
    }
    assert_eq!(world.receiver.connections(), 0);
    if let Ok(listener) = by_v6 {
        let came = tokio::time::timeout(std::time::Duration::ZERO, listener.accept()).await;
        assert!(came.is_err(), "a connection over IPv6");
    }
    // None is counted against an endpoint in any other way: nothing stops it.
    let sql = "select count(*) from postrider.endpoint_state where disabled_at is not null or ladder_paused_until is not null";
    assert_eq!(world.one::<i64>(sql, &[]).await, 0);
}

/// A name that leads outside when it is tried out and inside afterwards: 127.0.0.1 is what the allowlist
/// names and stands for outside, 127.0.0.2 is inside.
#[tokio::test]
async fn g25_a_name_that_changes_its_answer_gains_nothing() {
    let mut world = World::new(|_, _| Reply::status(200).then_close()).await;
    let port = world.receiver.address().port();
    let inside = counting(SocketAddr::from(([127, 0, 0, 2], port))).await;
    let url = format!("http://rebinds.test:{port}/in");
    let endpoint = endpoint_at(&world, &url).await;
    let lookups = AtomicUsize::new(0);
    world.worker_with(|o| {
        o.allow_networks = vec!["127.0.0.1/32".parse().unwrap()];
        o.resolver = Resolver::new(move |_| {
            let found: &[u8] = match lookups.fetch_add(1, Ordering::SeqCst) {
                0 => &[1],
                1 => &[2],
                2 => &[1, 2],
                3 => &[2, 1],
                _ => &[1, 1],
            };
            let address = |last: &u8| SocketAddr::from(([127, 0, 0, *last], 0));
            Ok(found.iter().map(address).collect())
        });
    });
    for status in ["delivered", "rejected", "rejected", "rejected", "delivered"] {
        let event = world.emit("a").await;
        let ended = world.wait_for_status(event, endpoint, status).await;
        if status == "rejected" {
            assert_refused(&ended, &url);
        }
    }
    assert_eq!(inside.load(Ordering::SeqCst), 0);
    assert_eq!(world.receiver.connections(), 2);
}

/// An entry that cannot be read strictly stops the start, rather than matching nothing or too much.
#[tokio::test]
async fn g25_a_bad_entry_of_the_allowlist_stops_the_start() {
    let db = TestDb::empty().await;
    for entry in [
        " 127.0.0.0/8",
        "127.0.0.0/8 ",
        "127.0.0.0 /8",
        "10.0.0.0/8, 192.168.0.0/16",
        "10.0.0.5",
        "10.0.0.5/8",
        "10.0.0.0/33",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "::ffff:10.0.0.0/104",
        "internal",
        "*",
        "",
    ] {
        let args = ["worker", "--allow-network", entry];
        let (status, output) = Process::run(&args, &[("DATABASE_URL", db.url())]).await;
        assert!(!status.success(), "{entry:?}: {output}");
        assert!(output.contains("network"), "{entry:?}: {output}");
    }
}
