//! G18: deadlocks, serialization failures and lock time-outs pass, and workers with them: none exits, no outcome
//! is lost, nothing that a 2xx answered is sent again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;

use crate::fixtures::arrivals::assert_one_flight;
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, Worker, ms};
use crate::fixtures::world::World;

const FOR: Duration = Duration::from_secs(5);

/// One in ten statements of a worker that write meets one of the three errors that pass.
const ERRORS: &str = "
    create sequence public.errors;
    create function public.pass() returns trigger language plpgsql as $$
        begin
            if current_setting('application_name') like 'postrider%' and random() < 0.1 then
                perform nextval('public.errors');
                case floor(random() * 3)
                    when 0 then raise exception 'a deadlock' using errcode = '40P01';
                    when 1 then raise exception 'not serializable' using errcode = '40001';
                    else raise exception 'no lock' using errcode = '55P03';
                end case;
            end if;
            return null;
        end $$;
    create trigger pass before insert or update or delete on postrider.pending execute function public.pass();
    create trigger pass before update on postrider.endpoint_state execute function public.pass();
    grant all on sequence public.errors to public;";

/// What people, `maintain` and a stranger, who keeps no order of locks, do at the same time.
async fn disturb(s: Client, ids: Vec<i64>, url: String, until: Instant, seed: u64) -> u32 {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut errors = 0;
    s.batch_execute("set deadlock_timeout = '20ms'")
        .await
        .unwrap();
    while Instant::now() < until {
        let id = ids[rng.random_range(0..ids.len())];
        let sql = match rng.random_range(0..8) {
            0 => format!("select postrider.pause_endpoint({id}); select pg_sleep(0.05); select postrider.resume_endpoint({id})"),
            1 => format!("select postrider.disable_endpoint({id}); select pg_sleep(0.05); select postrider.enable_endpoint({id})"),
            2 => format!(
                "select postrider.delete_endpoint(id) from postrider.endpoints where url = '{url}' and deleted_at is null;
                 select postrider.create_endpoint('{url}', policy => 'quick')"
            ),
            3 => "select postrider.maintain()".to_owned(),
            // Deliveries end while they are in hand.
            4 => "update postrider.pending p set expires_at = clock_timestamp() where (event_id, endpoint_id) in
                      (select event_id, endpoint_id from postrider.pending order by random() limit 2 for update skip locked)"
                .to_owned(),
            5..=6 => "begin; select from postrider.pending order by random() limit 9 for update; select pg_sleep(0.02);
                      select from postrider.endpoint_state order by random() for update; commit"
                .to_owned(),
            _ => format!("begin; select from postrider.endpoint_state where endpoint_id = {id} for update; select pg_sleep(0.1); commit"),
        };
        if s.batch_execute(&sql).await.is_err() {
            errors += 1;
            let _ = s.batch_execute("rollback").await;
        }
        tokio::time::sleep(ms(rng.random_range(5..40))).await;
    }
    errors
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g18_errors_that_pass_end_no_worker_and_lose_no_outcome() {
    let world = World::new(|request, nth| {
        let fails = nth.of_id == 1
            && request
                .header("webhook-id")
                .is_some_and(|id| id.ends_with('0'));
        Reply::status(if fails { 500 } else { 200 }).after(ms(10))
    })
    .await;
    let mut ids = Vec::new();
    for path in ["/a", "/b", "/c"] {
        ids.push(world.endpoint(path, "concurrency => 10").await);
    }
    world.endpoint("/d", "").await;
    world.run(ERRORS).await;
    let workers: Vec<Worker> = (0..4)
        .map(|_| Worker::start(&world.database, |_| {}))
        .collect();
    let until = Instant::now() + FOR;
    let mut disturbing = Vec::new();
    for seed in 0..4 {
        let (url, session) = (world.receiver.url("/d"), world.connect().await);
        disturbing.push(tokio::spawn(disturb(
            session,
            ids.clone(),
            url,
            until,
            seed,
        )));
    }
    let mut emitted = 0;
    while Instant::now() < until {
        emitted += world.emit_many("a", 5).await.len();
        tokio::time::sleep(ms(40)).await;
    }
    let mut refused = 0;
    for session in disturbing {
        refused += session.await.unwrap();
    }
    let errors: i64 = world.one("select last_value from public.errors", &[]).await;
    println!("{emitted} events, {errors} errors in workers' calls, {refused} in others'");
    assert!(errors > 3, "{errors}");
    let no_more = "create or replace function public.pass() returns trigger language plpgsql as 'begin return null; end'";
    world.run(no_more).await;
    for id in &ids {
        let verbs =
            format!("select postrider.resume_endpoint({id}), postrider.enable_endpoint({id})");
        world.run(&verbs).await;
    }
    let owed =
        "select (select count(*) from postrider.outbox) + (select count(*) from postrider.deferred)
                     + (select count(*) from postrider.pending)";
    eventually(LIMIT * 2, async || {
        world.run("select postrider.maintain()").await;
        (world.one::<i64>(owed, &[]).await == 0).then_some(())
    })
    .await;
    for worker in workers {
        // Fails if it has ended already, or ends badly.
        worker.stop().await;
    }

    let requests = world.receiver.requests();
    assert_one_flight(&requests);
    let mut answered: HashMap<(String, String), Vec<u16>> = HashMap::new();
    for request in &requests {
        let of_it = answered
            .entry((request.path.clone(), request.id()))
            .or_default();
        assert!(
            !of_it.contains(&200),
            "{} was sent again: {of_it:?}",
            request.id()
        );
        of_it.push(request.status.unwrap());
    }
    let stored = "select count(*) from postrider.attempts";
    assert_eq!(
        world.one::<i64>(stored, &[]).await,
        i64::try_from(requests.len()).unwrap()
    );
    // A 2xx is known as delivered, but for what a person or its time ended while it was in flight.
    let delivered = "select count(*) from postrider.attempts t where t.outcome = 'delivered' and not exists (
                         select from postrider.finished f where f.event_id = t.event_id and f.endpoint_id = t.endpoint_id
                            and (f.status = 'delivered' or (f.status in ('expired', 'cancelled') and t.stale)))";
    assert_eq!(world.one::<i64>(delivered, &[]).await, 0);
    let all = "select count(*) from postrider.finished where endpoint_id = any ($1)";
    assert_eq!(
        world.one::<i64>(all, &[&ids]).await,
        i64::try_from(3 * emitted).unwrap()
    );
    assert!(requests.len() > emitted, "hardly anything was sent");
}
