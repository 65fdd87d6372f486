//! G30: a resolver that hangs must not hold up deliveries that have nothing to do with it, threads stay few,
//! a name that cannot be looked up for a while is tried again, and every new connection looks up anew.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use postrider::delivery::Resolver;
use uuid::Uuid;

use crate::fixtures::arrivals::median;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Names that begin with `dead` hang until it is dropped or opened; all others are here.
#[derive(Default)]
struct Names {
    open: Mutex<bool>,
    changed: Condvar,
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Hanging(Arc<Names>);

impl Hanging {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn resolver(&self) -> Resolver {
        let names = Arc::clone(&self.0);
        Resolver::new(move |host| {
            let now = names.now.fetch_add(1, Ordering::SeqCst) + 1;
            names.most.fetch_max(now, Ordering::SeqCst);
            if host.starts_with("dead") {
                let open = names.open.lock().unwrap();
                drop(names.changed.wait_while(open, |open| !*open).unwrap());
            }
            names.now.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))])
        })
    }

    fn open(&self) {
        *self.0.open.lock().unwrap() = true;
        self.0.changed.notify_all();
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.open();
    }
}

/// An endpoint at the receiver, under this name.
async fn named(world: &World, host: &str, path: &str, settings: &str) -> i64 {
    let url = format!("http://{host}:{}{path}", world.receiver.address().port());
    let sql = format!("select endpoint_id from postrider.create_endpoint(url => $1, {settings})");
    world.one(&sql, &[&url]).await
}

/// Three hundred names hang, each with several deliveries; an endpoint by address and one whose name works
/// are served as ever. When the resolver comes back, all is delivered, and what only waited for a thread
/// was never counted as an attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g30_hanging_names_hold_up_only_themselves() {
    let hanging = Hanging::new();
    // Closed after each answer, so that each delivery looks its name up.
    let mut world = World::alone(|_, _| Reply::status(200).then_close()).await;
    let policy = r#"{"connect_timeout": "4 s", "request_timeout": "5 s"}"#;
    world.quick_policy("short", policy).await;
    world.endpoint("/by-address", "event_types => '{a}'").await;
    named(
        &world,
        "works.test",
        "/by-name",
        "policy => 'quick', event_types => '{n}'",
    )
    .await;
    for n in 0..300 {
        let settings = "policy => 'short', event_types => '{d}', concurrency => 5";
        named(&world, &format!("dead{n}.test"), "/dead", settings).await;
    }
    let resolver = hanging.resolver();
    world.worker_with(|o| o.resolver = resolver);
    let first = world.emit("n").await;
    world.arrival("/by-name", first).await;
    world.emit_many("d", 3).await;
    let busy = async || (hanging.0.now.load(Ordering::SeqCst) >= 16).then_some(());
    eventually(LIMIT, busy).await;

    let mut took = Vec::new();
    for n in 0..30 {
        let (event_type, path) = [("a", "/by-address"), ("n", "/by-name")][n % 2];
        let before = Instant::now();
        let event = world.emit(event_type).await;
        let request = world.arrival(path, event).await;
        took.push(request.arrived.duration_since(before));
        tokio::time::sleep(ms(100)).await;
    }
    took.sort();
    let most = hanging.0.most.load(Ordering::SeqCst);
    println!(
        "beside 300 hanging names: median {:?}, worst {:?}, {most} lookups at once",
        median(took.clone()),
        took[29]
    );
    // All slots may be taken at first, but not for the time that connecting may take.
    assert!(took[26] < ms(500) && took[29] < ms(3000), "{took:?}");
    assert!(most <= 64, "{most} lookups at once");
    assert!(world.receiver.requests_to("/dead").is_empty());
    let sql = "select count(distinct endpoint_id), count(*) filter (where error_code <> 'connect_timeout')
               from postrider.attempts where error_code is not null";
    let row = world.sql.query_one(sql, &[]).await.unwrap();
    let (tried, others): (i64, i64) = (row.get(0), row.get(1));
    assert!(
        tried > 0 && tried <= 64,
        "{tried} endpoints were counted as tried"
    );
    assert_eq!(others, 0);

    hanging.open();
    let requests = world.arrived("/dead", 900).await;
    let ids: HashSet<_> = requests.iter().map(|r| r.id().to_owned()).collect();
    assert_eq!((requests.len(), ids.len()), (900, 3));
    world.settled().await;
}

/// A name that is not there for a while costs attempts like a connection that is refused, and then the
/// deliveries go out; where it leads is asked for every new connection.
#[tokio::test]
async fn g30_a_passing_failure_of_a_lookup_is_retried() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let mut world = World::new(|_, _| Reply::status(200).then_close()).await;
    let endpoint = named(&world, "name.test", "/in", "policy => 'quick'").await;
    world.worker_with(|o| {
        o.resolver = Resolver::new(move |_| match counter.fetch_add(1, Ordering::SeqCst) {
            0 => Err(std::io::Error::other("no such host")),
            1 => Ok(Vec::new()),
            2 => panic!("the resolver broke"),
            _ => Ok(vec![SocketAddr::from(([127, 0, 0, 1], 0))]),
        });
    });
    let event = world.emit("a").await;
    let done = world.wait_for_status(event, endpoint, "delivered").await;
    assert_eq!((done.attempts, done.failures), (4, 3));
    let errors = async |event: Uuid| {
        let sql =
            "select coalesce(array_agg(error_code order by number), '{}') from postrider.attempts
                   where event_id = $1 and error_code is not null";
        world.one::<Vec<String>>(sql, &[&event]).await
    };
    assert_eq!(errors(event).await, ["dns", "dns", "dns"]);
    for n in 0..3 {
        let before = asked.load(Ordering::SeqCst);
        let event = world.emit("a").await;
        world.wait_for_status(event, endpoint, "delivered").await;
        assert_eq!(asked.load(Ordering::SeqCst), before + 1, "connection {n}");
    }
}
