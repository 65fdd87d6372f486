//! The worker's connections are ended again and again.

use std::time::Instant;

use crate::fixtures::arrivals::{assert_once_each, assert_one_flight};
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

#[tokio::test]
async fn lost_connections_lose_and_repeat_nothing() {
    let mut world = World::new(|_, nth| {
        let status = if nth.of_id == 1 { 503 } else { 200 };
        Reply::status(status).after(ms(20))
    })
    .await;
    world.endpoint("/in", "concurrency => 10").await;
    world.worker();
    world.worker();
    let limit = Instant::now() + LIMIT;
    let mut emitted = 0;
    let mut killed = 0;
    while killed < 60 {
        world.emit_many("a", 10).await;
        emitted += 10;
        tokio::time::sleep(ms(100)).await;
        // Whoever is not of the test.
        let kill = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                     where datname = current_database() and application_name <> 'test'";
        killed += world.one::<i64>(kill, &[]).await;
        assert!(Instant::now() < limit, "they do not come back: {killed}");
    }
    println!("{killed} connections ended under {emitted} events");
    world.settled().await;
    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    // The leases held all the time, so the workers remembered what they had sent.
    let delivered: Vec<_> = requests
        .iter()
        .filter(|r| r.status == Some(200))
        .cloned()
        .collect();
    assert_once_each(&delivered, emitted);
    let failed: Vec<_> = requests
        .iter()
        .filter(|r| r.status == Some(503))
        .cloned()
        .collect();
    assert_once_each(&failed, emitted);
    let sql = "select count(*) from postrider.deliveries where status = 'delivered' and attempts = 2 and failures = 1";
    assert_eq!(
        world.one::<i64>(sql, &[]).await,
        i64::try_from(emitted).unwrap()
    );
}
