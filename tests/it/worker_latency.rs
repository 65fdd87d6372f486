//! From COMMIT to the request: two commits, of the application's and of ours.

use std::time::{Duration, Instant};

use postrider::connect::Database;

use crate::fixtures::arrivals::median;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// A few milliseconds on a quiet machine; this is for a noisy one, which also gets three tries.
const MOST: Duration = ms(25);
const TRIES: usize = 3;

/// Emits one event after the other and returns how long each took from just before its COMMIT.
async fn one_by_one(world: &World, count: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..count {
        world.sql.batch_execute("begin").await.unwrap();
        let event = world.emit("probe").await;
        let before = Instant::now();
        world.sql.batch_execute("commit").await.unwrap();
        let request = world.arrival("/probe", event).await;
        took.push(request.arrived.saturating_duration_since(before));
    }
    took
}

async fn probed_world() -> World {
    let mut world = World::alone(|_, _| Reply::status(200)).await;
    world.endpoint("/probe", "event_types => '{probe}'").await;
    world.endpoint("/noise", "event_types => '{noise}'").await;
    world.worker();
    world.worker();
    let warm = world.emit("probe").await;
    world.arrival("/probe", warm).await;
    world
}

fn say(what: &str, mut took: Vec<Duration>) -> Duration {
    took.sort();
    let middle = median(took.clone());
    let (p95, worst) = (took[took.len() * 95 / 100], took[took.len() - 1]);
    println!("{what}: median {middle:?}, 95 % {p95:?}, worst {worst:?}");
    middle
}

/// The median must be low enough in one of the tries.
async fn best_of(what: &str, most: Duration, mut measure: impl AsyncFnMut() -> Vec<Duration>) {
    let mut medians = Vec::new();
    while medians.len() < TRIES {
        let median = say(what, measure().await);
        if median < most {
            return;
        }
        medians.push(median);
    }
    panic!("{what}: {medians:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_fleet_sends_within_milliseconds() {
    let world = probed_world().await;
    best_of("idle", MOST, async || one_by_one(&world, 60).await).await;
}

/// After the endpoint was given up: a claim more on the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_that_owns_nothing_is_no_slower() {
    let world = probed_world().await;
    let unowned = "select bool_and(owner is null) from postrider.endpoint_state";
    best_of("unowned", MOST * 2, async || {
        let mut took = Vec::new();
        for _ in 0..3 {
            crate::fixtures::eventually(LIMIT, async || {
                world.one::<bool>(unowned, &[]).await.then_some(())
            })
            .await;
            took.extend(one_by_one(&world, 1).await);
        }
        took
    })
    .await;
}

async fn keep_emitting(database: Database) {
    let client = database.connect().await.unwrap();
    loop {
        let emit = "begin; select postrider.emit_event('noise', '{}'::text)";
        client.batch_execute(emit).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        client.batch_execute("commit").await.unwrap();
    }
}

/// Eight sessions have emitted and not yet committed, all the time: the ninth does not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g19_open_emitters_delay_nobody() {
    let world = probed_world().await;
    let mut others = tokio::task::JoinSet::new();
    for n in 0..8 {
        let database = world.database.named("test");
        others.spawn(async move {
            tokio::time::sleep(ms(125 * n)).await;
            keep_emitting(database).await;
        });
    }
    let busy = "select count(*) = 8 from pg_stat_activity
                 where datname = current_database() and state = 'idle in transaction'";
    crate::fixtures::eventually(LIMIT, async || {
        world.one::<bool>(busy, &[]).await.then_some(())
    })
    .await;
    best_of("beside eight open emitters", MOST, async || {
        let mut took = Vec::new();
        for _ in 0..60 {
            took.extend(one_by_one(&world, 1).await);
            tokio::time::sleep(ms(50)).await;
        }
        took
    })
    .await;
    // Theirs arrive too, each once.
    others.shutdown().await;
    world.settled().await;
    let noise = world.receiver.requests_to("/noise");
    assert!(noise.len() > 8);
    crate::fixtures::arrivals::assert_once_each(&noise, noise.len());
    let emitted: i64 = world
        .one(
            "select count(*) from postrider.events where event_type = 'noise'",
            &[],
        )
        .await;
    assert_eq!(usize::try_from(emitted).unwrap(), noise.len());
}
