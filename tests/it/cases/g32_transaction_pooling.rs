//! G32: behind a proxy that pools transactions, statements fail and LISTEN is silently useless.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::http::Reply;
use crate::fixtures::process::Process;
use crate::fixtures::worker::LIMIT;
use crate::fixtures::world::World;

const POLLS_ONLY: &str = "polls only";

fn worker(url: &str, more: &[&str]) -> Process {
    let mut args = vec!["worker", "--allow-network", "127.0.0.0/8"];
    args.extend(["--poll-interval", "1s"]);
    args.extend(more);
    Process::start(&args, &[("DATABASE_URL", url)])
}

/// Four workers, a pool of two, a thousand events; what the workers printed.
async fn deliver_by_pool(direct: bool) -> Vec<String> {
    let world = World::new(|_, _| Reply::status(200)).await;
    for path in ["/a", "/b", "/c", "/d"] {
        world.endpoint(path, "concurrency => 20").await;
    }
    let pool = world.pgbouncer(2).await;
    let direct_url = world.url().to_owned();
    let listen = ["--listen-url", direct_url.as_str()];
    let more: &[&str] = if direct { &listen } else { &[] };
    let workers: Vec<Process> = (0..4).map(|_| worker(pool.url(), more)).collect();
    for one in &workers {
        one.wait_for_output("registered", LIMIT).await;
        if !direct {
            one.wait_for_output(POLLS_ONLY, LIMIT).await;
        }
    }
    world.emit_many("a", 250).await;
    world.receiver.wait_for_count(1000, LIMIT).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 1000);
    workers.iter().map(Process::output).collect()
}

fn assert_no_statement_errors(outputs: &[String]) {
    for output in outputs {
        assert!(!output.contains("prepared statement"), "{output}");
        assert!(!output.contains("SQLSTATE"), "{output}");
    }
}

#[tokio::test]
async fn g32_with_a_direct_connection_to_listen_on_all_is_delivered() {
    let outputs = deliver_by_pool(true).await;
    assert_no_statement_errors(&outputs);
    for output in outputs {
        assert!(!output.contains(POLLS_ONLY), "{output}");
    }
}

#[tokio::test]
async fn g32_without_one_all_is_delivered_and_the_worker_says_that_it_polls() {
    assert_no_statement_errors(&deliver_by_pool(false).await);
}
