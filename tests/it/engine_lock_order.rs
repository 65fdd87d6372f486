//! One lock order: whatever runs at once, nothing deadlocks and nothing is lost.
//!
//! The engine gives up a wait for an endpoint after 50 ms, so a deadlock is looked for later than that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::engine::{Engine, count, one, run};

const ENDPOINTS: i64 = 12;
const FOR: Duration = Duration::from_secs(5);

/// One random call; the ids it names come in any order.
fn call(rng: &mut SmallRng, worker: Uuid, session: usize) -> String {
    let mut ids: Vec<i64> = (1..=ENDPOINTS).collect();
    ids.shuffle(rng);
    let list = |ids: &[i64]| {
        ids.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    };
    let some = list(&ids[..6]);
    let id = ids[0];
    match rng.random_range(0..16) {
        0..=2 => "select postrider.emit_event('a.b', '{}') from generate_series(1, 3)".into(),
        3..=4 => format!("select postrider.fan_out('{worker}')"),
        5..=6 => format!("select postrider.claim_endpoints('{worker}', {})", rng.random_range(1..8)),
        // Reports on what anybody owns, in an order of its own.
        7..=9 => {
            let status = [200, 500, 404, 429, 503][rng.random_range(0..5)];
            let seq: i64 = rng.random_range(1..i64::MAX / 2);
            format!(
                "select postrider.report_attempts('{worker}', array_agg({seq} + n), array_agg(event_id), array_agg(endpoint_id),
                     array_agg(run), array_agg(attempts + 1), array_agg(0::bigint), array_agg(1), array_agg({status}),
                     array_agg(null::text), array_agg(null::text), array_agg(1000::bigint), array_agg(null::text))
                 from (select row_number() over () as n, p.* from (select * from postrider.pending order by random() limit 20) p) x
                 having count(*) > 0"
            )
        }
        10 => format!("select postrider.release_endpoints('{worker}', '{{{some}}}', '{{0,5,0,1,2,3}}')"),
        11 => {
            let verb = ["pause_endpoint", "resume_endpoint", "disable_endpoint", "enable_endpoint", "rotate_secret"][rng.random_range(0..5)];
            let overlap = if verb == "rotate_secret" { ", '0'" } else { "" };
            format!("select postrider.{verb}({id}{overlap})")
        }
        12 => format!("select postrider.update_endpoint({id}, description => '{session}', event_types => '{{a.*}}')"),
        13 => "select postrider.maintain()".into(),
        14 => {
            "select postrider.replay_delivery(event_id, endpoint_id) from (select f.* from postrider.finished f
                 where not exists (select from postrider.pending p where p.event_id = f.event_id and p.endpoint_id = f.endpoint_id)
                   and (f.event_id, f.endpoint_id) in (select event_id, min(endpoint_id) from postrider.finished group by 1)
                 order by random() limit 1) x"
                .into()
        }
        _ => format!("select postrider.heartbeat('{worker}', array(select id from postrider.workers where id <> '{worker}' order by random() limit 1), '{{0}}')"),
    }
}

/// Calls for a while; the SQLSTATEs it met.
async fn play(s: Client, session: usize) -> Vec<String> {
    let mut rng = SmallRng::seed_from_u64(session as u64);
    let until = Instant::now() + FOR;
    let register = "select worker from postrider.register_worker('test', '0') limit 1";
    let mut worker: Uuid = one(&s, register).await;
    let mut met = Vec::new();
    while Instant::now() < until {
        let sql = call(&mut rng, worker, session);
        let Err(error) = s.batch_execute(&sql).await else {
            continue;
        };
        let code = error
            .code()
            .map_or_else(|| error.to_string(), |c| c.code().to_owned());
        match code.as_str() {
            "PR021" => worker = one(&s, register).await,
            // A delivery that someone else replayed meanwhile.
            "PR019" => {}
            _ => met.push(format!("{error:?} in {sql}")),
        }
    }
    met
}

#[tokio::test]
async fn g18_everything_at_once_never_deadlocks() {
    let e = Arc::new(Engine::new().await);
    for _ in 0..ENDPOINTS {
        e.endpoint("policy => 'brisk'").await;
    }
    let mut playing = Vec::new();
    for session in 0..6 {
        let s = e.session().await;
        run(
            &s,
            "set deadlock_timeout = '200ms'; set statement_timeout = '20s'",
        )
        .await;
        playing.push(tokio::spawn(play(s, session)));
    }
    let mut met = Vec::new();
    for play in playing {
        met.extend(play.await.unwrap());
    }
    assert!(met.is_empty(), "{met:#?}");
    // Something happened, and each event reached each endpoint that took it once: owed or ended.
    assert!(count(&e.sql, "postrider.attempts").await > 50);
    while one::<bool>(
        &e.sql,
        &format!("select more from postrider.fan_out('{}')", Uuid::nil()),
    )
    .await
    {}
    let sql = "select count(*) from postrider.events v cross join postrider.endpoints n
               where not exists (select from postrider.pending p where p.event_id = v.id and p.endpoint_id = n.id)
                 and not exists (select from postrider.finished f where f.event_id = v.id and f.endpoint_id = n.id)";
    assert_eq!(one::<i64>(&e.sql, sql).await, 0);
    // Every endpoint with something owed is in sight of a claim.
    let sql = "select count(*) from postrider.endpoint_state s
               where s.owner is null and s.disabled_at is null and s.next_claim_at is null
                 and exists (select from postrider.pending p where p.endpoint_id = s.endpoint_id)";
    assert_eq!(one::<i64>(&e.sql, sql).await, 0);
}

/// Batches over the same endpoints and deliveries, each in another order.
#[tokio::test]
async fn g18_set_wise_writers_meet_in_any_order() {
    let e = Engine::new().await;
    for _ in 0..ENDPOINTS {
        e.endpoint("").await;
    }
    let worker = e.worker().await;
    e.emit_many(100, "'a.b', '{}'").await;
    e.fan_out().await;
    assert_eq!(
        e.claim(worker, 100).await.len(),
        usize::try_from(ENDPOINTS).unwrap()
    );
    let mut writers = Vec::new();
    for order in [
        "event_id, endpoint_id",
        "event_id desc, endpoint_id desc",
        "endpoint_id, event_id desc",
        "random()",
    ] {
        let s = e.session().await;
        run(&s, "set deadlock_timeout = '200ms'").await;
        let sql = format!(
            "select postrider.report_attempts('{worker}', array_agg(n), array_agg(event_id), array_agg(endpoint_id), array_agg(run),
                 array_agg(attempts + 1), array_agg(0::bigint), array_agg(1), array_agg(500), array_agg(null::text),
                 array_agg(null::text), array_agg(null::bigint), array_agg(null::text))
             from (select row_number() over (order by {order}) as n, p.* from postrider.pending p order by n) x"
        );
        writers.push(tokio::spawn(async move {
            for _ in 0..5 {
                run(&s, &sql).await;
            }
        }));
    }
    let releasing = e.session().await;
    let emitter = e.worker().await;
    for n in 0..30 {
        let ids = if n % 2 == 0 {
            "12,11,10,9,8,7,6,5,4,3,2,1"
        } else {
            "1,2,3,4,5,6,7,8,9,10,11,12"
        };
        let sql = format!(
            "select postrider.release_endpoints('{emitter}', '{{{ids}}}', '{{0,0,0,0,0,0,0,0,0,0,0,0}}');
             select postrider.emit_event('a.b', '{{}}')"
        );
        run(&releasing, &sql).await;
        run(&releasing, &format!("select postrider.fan_out('{worker}')")).await;
    }
    for writer in writers {
        writer.await.unwrap();
    }
}
