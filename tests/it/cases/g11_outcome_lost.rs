//! G11: what came of a request can never be stored, and the delivery is sent again without end.

use crate::fixtures::arrivals::assert_once_each;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

async fn nothing_ends(world: &World) {
    world
        .run(
            "create function public.refuse() returns trigger language plpgsql as $$
             begin raise exception 'refused by the test'; end $$;
             create trigger refuse before insert on postrider.finished
                 for each row execute function public.refuse()",
        )
        .await;
}

/// As often as it takes: reports lock the table and its leaves in another order.
async fn all_ends(world: &World) {
    let sql = "drop trigger refuse on postrider.finished";
    eventually(LIMIT, async || world.sql.batch_execute(sql).await.ok()).await;
}

async fn lapses(world: &World, endpoint: i64) -> i32 {
    let sql =
        "select lapses from postrider.endpoint_state where endpoint_id = $1 and owner is null";
    eventually(ms(10_000), async || {
        let row = world.sql.query_opt(sql, &[&endpoint]).await.unwrap()?;
        Some(row.get(0))
    })
    .await
}

/// Somebody restarts the worker in good order again and again, since it says that it is not well. Every start
/// sends what the one before could not tell of: ever later.
#[tokio::test]
async fn g11_restarts_in_good_order_do_not_repeat_it_without_end() {
    let world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "").await;
    nothing_ends(&world).await;
    let event = world.emit("a").await;
    for start in 1..=2 {
        let worker = Worker::start(&world.database, |o| o.drain_limit = ms(500));
        world.arrived("/in", start).await;
        let ended = worker.try_stop().await;
        assert!(ended.is_err(), "outcomes were left");
        let found = lapses(&world, endpoint).await;
        assert_eq!(found, i32::try_from(start).unwrap());
    }
    let worker = Worker::start(&world.database, |o| o.drain_limit = ms(500));
    let other = world.endpoint("/other", "").await;
    let next = world.emit("a").await;
    world.arrival("/other", next).await;
    assert_eq!(world.receiver.requests_to("/in").len(), 2);
    let wait = "select extract(epoch from next_claim_at - postrider.now())::float8
                  from postrider.endpoint_state where endpoint_id = $1";
    let wait: f64 = world.one(wait, &[&endpoint]).await;
    assert!((30.0..=60.0).contains(&wait), "{wait}");
    // Why it waits is there to be seen.
    let waits = world.delivery(event, endpoint).await.unwrap();
    let reason = waits.reason.unwrap_or_default();
    assert!(reason.contains("lost"), "{} {reason}", waits.status);
    // Once outcomes can be stored again, all goes on, and the count begins anew.
    all_ends(&world).await;
    world
        .run(&format!(
            "update postrider.endpoint_state set lapsed_until = postrider.now(), next_claim_at = postrider.now()
              where endpoint_id = {endpoint}; select pg_notify('postrider', '')"
        ))
        .await;
    for endpoint in [endpoint, other] {
        world.wait_for_status(next, endpoint, "delivered").await;
    }
    world.wait_for_status(event, endpoint, "delivered").await;
    let cleared = "select lapses = 0 from postrider.endpoint_state where endpoint_id = $1";
    assert!(world.one::<bool>(cleared, &[&endpoint]).await);
    worker.stop().await;
}

/// A worker that stops while the database takes nothing, which recovers in time: nothing is sent again, and the
/// endpoint goes to the next without a delay.
#[tokio::test]
async fn g11_a_stop_waits_for_the_database_and_is_no_lapse() {
    let world = World::new(|_, _| Reply::status(200)).await;
    let endpoint = world.endpoint("/in", "").await;
    nothing_ends(&world).await;
    world.emit_many("a", 5).await;
    let worker = Worker::start(&world.database, |_| {});
    world.arrived("/in", 5).await;
    let stopping = tokio::spawn(worker.try_stop());
    tokio::time::sleep(ms(1500)).await;
    assert!(!stopping.is_finished(), "it left before its outcomes");
    all_ends(&world).await;
    stopping.await.unwrap().unwrap();
    world.settled().await;
    assert_eq!(lapses(&world, endpoint).await, 0);
    assert_once_each(&world.receiver.requests(), 5);
}

/// Texts that a text column or its encoding would refuse, each alone, with an answer that succeeds and with one
/// that does not: the outcome is stored, once, and history is written.
#[tokio::test]
async fn g11_no_text_of_an_answer_keeps_its_outcome_from_being_stored() {
    let texts: [&[u8]; 9] = [
        b"\0",
        b"a\0b\0",
        b"\xff\xfe",
        b"\xe2\x28",
        b"\xed\xa0\x80 \xed\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xc0\x80",
        "\u{feff}\u{202e}\u{10ffff}\u{1b}[2J".as_bytes(),
        b"\\x00 '); drop table postrider.events; --",
    ];
    let mut world = World::new(move |request, nth| {
        let text: usize = request.path[1..].parse().unwrap();
        let status = if nth.of_path == 1 { 500 } else { 200 };
        Reply::status(status).body(texts[text])
    })
    .await;
    let mut endpoints = Vec::new();
    for text in 0..texts.len() {
        endpoints.push(world.endpoint(&format!("/{text}"), "").await);
    }
    world.worker();
    let event = world.emit("a").await;
    for endpoint in &endpoints {
        let done = world.wait_for_status(event, *endpoint, "delivered").await;
        assert_eq!((done.attempts, done.failures), (2, 1));
    }
    assert_eq!(world.receiver.requests().len(), 2 * texts.len());
    let bare =
        "select count(*) from postrider.attempts where answer is null or error_code is not null";
    assert_eq!(world.one::<i64>(bare, &[]).await, 0);
    let logged = "select count(*) from postrider.attempts";
    assert_eq!(
        world.one::<i64>(logged, &[]).await,
        2 * i64::try_from(texts.len()).unwrap()
    );
}
