//! report: what happens while an outcome cannot be stored.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// Changes a table while reports are under way: they lock leaf and table in another order.
async fn change(world: &World, sql: &str) {
    eventually(LIMIT, async || world.sql.batch_execute(sql).await.ok()).await;
}

/// Makes every insert into `finished` for these endpoints fail with this error.
async fn refuse_endings(world: &World, errcode: &str, condition: &str) {
    let sql = format!(
        "create function public.refuse() returns trigger language plpgsql as $$
         begin
             raise exception 'refused by the test' using errcode = '{errcode}';
         end $$;
         create trigger refuse before insert on postrider.finished
             for each row when ({condition}) execute function public.refuse()"
    );
    change(world, &sql).await;
}

async fn accept_endings(world: &World) {
    change(world, "drop trigger refuse on postrider.finished").await;
}

/// History is worth less than state: without it everything is delivered, once, and ends.
#[tokio::test]
async fn g11_history_that_cannot_be_written_holds_nothing_up() {
    let mut world =
        World::new(|_, nth| Reply::status(if nth.of_id == 1 { 500 } else { 200 })).await;
    let endpoint = world.endpoint("/in", "").await;
    world.worker();
    let first = world.emit("a").await;
    world.wait_for_status(first, endpoint, "delivered").await;
    for table in ["attempts", "endpoint_stats"] {
        let gone = format!("alter table postrider.{table} rename to gone");
        change(&world, &gone).await;
        let events = world.emit_many("a", 30).await;
        for event in events {
            let done = world.wait_for_status(event, endpoint, "delivered").await;
            assert_eq!((done.attempts, done.failures), (2, 1));
        }
        let back = format!("alter table postrider.gone rename to {table}");
        change(&world, &back).await;
    }
    let last = world.emit("a").await;
    world.wait_for_status(last, endpoint, "delivered").await;
    assert_eq!(world.receiver.requests().len(), 2 * 62);
    let logged = "select count(*) from postrider.attempts where event_id = $1";
    assert_eq!(world.one::<i64>(logged, &[&last]).await, 2);
}

/// No outcome can be stored: nothing more is sent meanwhile, nothing twice, and all of it afterwards.
async fn outcomes_wait(errcode: &str) {
    let mut world = World::new(|_, _| Reply::status(200).after(ms(50))).await;
    let endpoint = world.endpoint("/in", "concurrency => 5").await;
    world.worker();
    let first = world.emit("a").await;
    world.wait_for_status(first, endpoint, "delivered").await;
    refuse_endings(&world, errcode, "true").await;
    let events = world.emit_many("a", 100).await;
    world.receiver.wait_for_count(6, LIMIT).await;
    // Nothing to wait for: what must not happen needs its time.
    tokio::time::sleep(ms(500)).await;
    let sent = world.receiver.requests().len();
    // One more round may have left while the first report was on its way.
    assert!(sent <= 1 + 10, "{sent}");
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(world.receiver.requests().len(), sent, "it goes on sending");
    let finished = "select count(*) from postrider.finished";
    assert_eq!(world.one::<i64>(finished, &[]).await, 1);
    accept_endings(&world).await;
    for event in events {
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        assert_eq!(done.attempts, 1);
    }
    assert_once_each(&world.receiver.requests(), 101);
}

#[tokio::test]
async fn g11_outcomes_wait_for_a_full_disk() {
    outcomes_wait("53100").await;
}

#[tokio::test]
async fn g11_outcomes_wait_for_a_database_that_refuses() {
    outcomes_wait("P0001").await;
}

/// The outcomes of one endpoint cannot be stored: the others go on.
#[tokio::test]
async fn g11_one_endpoints_outcomes_do_not_hold_up_the_others() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let bad = world.endpoint("/bad", "").await;
    let good = world.endpoint("/good", "").await;
    world.worker();
    let first = world.emit("a").await;
    world.wait_for_status(first, bad, "delivered").await;
    world.wait_for_status(first, good, "delivered").await;
    let condition = format!("new.endpoint_id = {bad}");
    refuse_endings(&world, "P0001", &condition).await;
    let events = world.emit_many("a", 20).await;
    world.arrived("/bad", 2).await;
    for event in &events {
        world.wait_for_status(*event, good, "delivered").await;
    }
    accept_endings(&world).await;
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 2 * 21);
}

/// Text that no text column takes is cleaned, and kept.
#[tokio::test]
async fn g11_whatever_an_answer_says_its_outcome_is_stored() {
    let mut world = World::new(|request, _| match request.path.as_str() {
        "/bytes" => Reply::status(200).body(*b"\0a\xff\xfe\xe2\x28"),
        _ => Reply::status(200).body(vec![b'x'; 5 << 20]),
    })
    .await;
    let bytes = world.endpoint("/bytes", "").await;
    let large = world.endpoint("/large", "").await;
    world.worker();
    let event = world.emit("a").await;
    for endpoint in [bytes, large] {
        let done = world.wait_for_status(event, endpoint, "delivered").await;
        assert_eq!(done.attempts, 1);
        let sql = "select answer from postrider.attempts where event_id = $1 and endpoint_id = $2";
        let answer: String = world.one(sql, &[&event, &endpoint]).await;
        assert!((1..=500).contains(&answer.chars().count()), "{answer:?}");
    }
    assert_eq!(world.receiver.requests().len(), 2);
}

/// With more to report than one call takes, the other half of the endpoints does not wait for its answer.
#[tokio::test]
async fn a_report_that_takes_long_does_not_hold_up_the_other_half() {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    let settings = "concurrency => 1000, rate => 10000, burst => 1000";
    let mut endpoints = Vec::new();
    for path in ["/a", "/b"] {
        endpoints.push(world.endpoint(path, settings).await);
    }
    assert_ne!(endpoints[0] % 2, endpoints[1] % 2);
    let proxy = world.proxy().await;
    let report = "postrider.report_attempts(";
    proxy.keep_answer_to(report);
    world.worker_by(&proxy, |_| {});
    world.emit("a").await;
    eventually(LIMIT, async || (proxy.kept() == 1).then_some(())).await;
    proxy.keep_answer_to(report);
    world.emit_many("a", 400).await;
    world.receiver.wait_for_count(802, LIMIT).await;
    proxy.let_go();
    eventually(LIMIT, async || (proxy.kept() == 2).then_some(())).await;
    // The one that is kept is stored too, but is of one half.
    for endpoint in &endpoints {
        let stored =
            format!("select count(*) > 100 from postrider.attempts where endpoint_id = {endpoint}");
        eventually(LIMIT, async || {
            world.one::<bool>(&stored, &[]).await.then_some(())
        })
        .await;
    }
    proxy.let_go();
    world.settled().await;
    assert_once_each(&world.receiver.requests(), 802);
}
