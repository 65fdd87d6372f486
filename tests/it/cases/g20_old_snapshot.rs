//! G20: a transaction elsewhere that stays open keeps every dead row; claiming, fetching and reporting cost the
//! same nevertheless.
//!
//! What a call costs is counted in index entries walked, dead ones included, which no other test disturbs.
//! `G20_DELIVERIES=200000` runs the case at its full size, on a machine of its own, and judges times too.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::Client;
use uuid::Uuid;

use crate::fixtures::arrivals::median;
use crate::fixtures::engine::{Engine, all, count, one, run};
use crate::fixtures::eventually;
use crate::fixtures::lane::Lane;
use crate::fixtures::worker::LIMIT;

const WALKED: &str = "select coalesce(sum(pg_stat_get_xact_tuples_returned(i.indexrelid)), 0)::bigint
    from pg_index i join pg_class c on c.oid = i.indrelid where c.relnamespace = 'postrider'::regnamespace";

/// What the calls of one round cost.
type Round = BTreeMap<&'static str, (i64, Duration)>;

async fn measured<T>(
    sql: &Client,
    round: &mut Round,
    name: &'static str,
    call: impl Future<Output = T>,
) -> T {
    run(sql, "begin").await;
    let before: i64 = one(sql, WALKED).await;
    let began = Instant::now();
    let result = call.await;
    let took = began.elapsed();
    let walked = one::<i64>(sql, WALKED).await - before;
    run(sql, "commit").await;
    round.insert(name, (walked, took));
    result
}

/// Low keys last, however slow this machine is: some seconds without one cost a walk, which is not the case here.
const LAST: &str = "select set_config('postrider.low_outbox', extract(epoch from clock_timestamp()) + 4 || '|' || split_part(kept, '|', 2), false)
    from current_setting('postrider.low_outbox', true) kept where kept <> ''";

const ENDPOINTS: usize = 4;
const EVENTS: usize = 125;

/// Emits, and does all that a worker does until the deliveries have ended; it keeps its endpoints, as one that
/// is busy does, but for every fifth time.
async fn round(e: &Engine, worker: Uuid, n: usize) -> Round {
    let mut round = Round::new();
    e.emit_many(EVENTS, "'a.b', '{}'").await;
    run(&e.sql, LAST).await;
    measured(&e.sql, &mut round, "fan_out", e.step(worker)).await;
    if n % 5 == 0 {
        measured(&e.sql, &mut round, "claim", e.claim(worker, 10)).await;
    }
    let endpoints: Vec<i64> = (1..=i64::try_from(ENDPOINTS).unwrap()).collect();
    let limit = i32::try_from(EVENTS).unwrap();
    let fetch = e.fetch(worker, &endpoints, limit, &[], 1_000_000);
    let fetched = measured(&e.sql, &mut round, "fetch", fetch).await;
    assert_eq!(fetched.len(), EVENTS * ENDPOINTS);
    let attempts: Vec<_> = fetched
        .iter()
        .map(|f| e.attempt(f.event, f.endpoint, 200))
        .collect();
    measured(&e.sql, &mut round, "report", e.report(worker, &attempts)).await;
    if n % 5 < 4 {
        return round;
    }
    let release = format!(
        "select postrider.release_endpoints('{worker}', array[{}], array_fill(0::bigint, array[{ENDPOINTS}]))",
        endpoints
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",")
    );
    measured(&e.sql, &mut round, "release", all::<i64>(&e.sql, &release)).await;
    round
}

/// The middle of what a call cost in these rounds.
fn middle(rounds: &[Round], name: &str) -> (i64, Duration) {
    let all: Vec<(i64, Duration)> = rounds.iter().filter_map(|r| r.get(name).copied()).collect();
    let mut walked: Vec<i64> = all.iter().map(|c| c.0).collect();
    walked.sort_unstable();
    let took = all.iter().map(|c| c.1).collect();
    (walked[walked.len() / 2], median(took))
}

#[tokio::test]
async fn g20_an_old_snapshot_makes_no_call_walk_all_dead_rows() {
    let wanted = std::env::var("G20_DELIVERIES").ok();
    let full = wanted.is_some();
    let deliveries = wanted.map_or(20_000, |n| n.parse().unwrap());
    // The versions of the endpoints' own rows add up too, slowly: four a claim and release.
    let scale = u32::try_from(deliveries / 20_000).unwrap().max(1);
    let e = Engine::new().await;
    for _ in 0..ENDPOINTS {
        e.endpoint("").await;
    }
    let worker = e.worker().await;
    let old = e.session().await;
    let begin = "begin isolation level repeatable read; select 1 from postrider.settings";
    run(&old, begin).await;
    let mut rounds = Vec::new();
    for n in 0..deliveries / (EVENTS * ENDPOINTS) {
        rounds.push(round(&e, worker, n).await);
    }
    let (first, last) = (&rounds[..10], &rounds[rounds.len() - 10..]);
    for name in ["fan_out", "claim", "fetch", "report", "release"] {
        let (before, after) = (middle(first, name), middle(last, name));
        let all = || rounds.iter().filter_map(|r| r.get(name));
        let (most, longest) = (all().map(|c| c.0).max(), all().map(|c| c.1).max());
        println!("{name}: {before:?}, then {after:?}; at most {most:?}, {longest:?}");
        assert!(
            after.0 <= 2 * before.0 + 2000 * i64::from(scale),
            "{name}: walks {before:?}, then {after:?}"
        );
        if full {
            let (was, is) = (before.1, after.1);
            assert!(is <= 5 * was, "{name}: {was:?}, then {is:?}");
            assert!(longest.unwrap() < Duration::from_millis(250), "{name}");
        }
    }
    let spent = |rounds: &[Round]| -> Duration {
        rounds.iter().flat_map(|r| r.values()).map(|c| c.1).sum()
    };
    let (was, is) = (spent(first), spent(last));
    println!("ten rounds: {was:?}, then {is:?}");
    assert!(!full || is <= 2 * was, "{was:?}, then {is:?}");
    assert_eq!(count(&e.sql, "postrider.pending").await, 0);
    run(&old, "commit").await;
    let after: Vec<Round> = [round(&e, worker, 0).await, round(&e, worker, 1).await].into();
    println!("without it: {after:?}");
    assert!(after[1]["fetch"].0 <= 2 * first[1]["fetch"].0 + 2000);
}

/// What a low key hides is found when the next scan is from the beginning: an event that became visible late.
#[tokio::test]
async fn g20_what_lies_below_a_low_key_is_found_soon() {
    let e = Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    let keep = |seconds: f64| {
        format!(
            "select set_config('postrider.low_outbox', extract(epoch from clock_timestamp()) + {seconds}
                               || '|ffffffff-ffff-7fff-bfff-ffffffffffff', false)"
        )
    };
    e.emit("'a.b', '{}'").await;
    run(&e.sql, &keep(0.7)).await;
    assert!(one::<bool>(&e.sql, "select postrider._outbox_low_key() is not null").await);
    eventually(LIMIT, async || (e.step(worker).await.0 == 1).then_some(())).await;
    // Kept before the clock was set back: no use, whether the time says so or the key.
    run(&e.sql, &keep(6.0)).await;
    assert!(one::<bool>(&e.sql, "select postrider._outbox_low_key() is null").await);
    run(&e.sql, &keep(4.0)).await;
    e.emit("'a.b', '{}'").await;
    assert_eq!(e.step(worker).await.0, 0);
    assert_eq!(e.step(worker).await.0, 1, "the key lay ahead of the clock");
}

/// An event that became visible late moves a low key; it does not end it, or each such event would cost a walk.
#[tokio::test]
async fn g20_a_low_key_survives_what_was_emitted_before_and_committed_after() {
    let e = Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    let other = e.session().await;
    run(&other, "begin; select postrider.emit_event('a.b', '{}')").await;
    e.pass(30).await;
    e.emit("'a.b', '{}'").await;
    let keep =
        "select set_config('postrider.low_outbox', extract(epoch from clock_timestamp()) + 4.5
                                      || '|00000000-0000-0000-0000-000000000000', false)";
    run(&e.sql, keep).await;
    assert_eq!(e.step(worker).await.0, 1);
    run(&other, "commit").await;
    let key = "select split_part(current_setting('postrider.low_outbox'), '|', 2)";
    let before: String = one(&e.sql, key).await;
    // It lies below the key, and so is found when that has ended; a key below it finds it at once.
    run(&e.sql, keep).await;
    assert_eq!(e.step(worker).await.0, 1);
    let after: String = one(&e.sql, key).await;
    assert!(
        !after.is_empty() && after < before,
        "{before}, then {after:?}"
    );
    run(
        &e.sql,
        &format!("select set_config('postrider.low_outbox', '9999999999|{before}', false)"),
    )
    .await;
    let lower = format!(
        "select postrider._keep_outbox_low_key('{before}', '{after}', 0, clock_timestamp())::text"
    );
    run(&e.sql, &lower).await;
    assert_eq!(one::<String>(&e.sql, key).await, after);
}

/// Nothing that is owed ever lies below its endpoint's low key, and a key ahead of the clock, which was set back,
/// delays nothing.
#[tokio::test]
async fn g20_retries_and_replays_are_due_above_the_low_key() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(2).await;
    let late = "update postrider.pending set expires_at = postrider.now() - interval '1 min'";
    run(&e.sql, late).await;
    let ahead =
        "update postrider.endpoint_state set low_due_at = postrider.now() + interval '4 days'";
    run(&e.sql, ahead).await;
    lane.report(&[lane.attempt(events[0], 500), lane.attempt(events[1], 404)])
        .await;
    run(&e.sql, ahead).await;
    let replay = format!(
        "select postrider.replay_delivery('{}', {})",
        events[1], lane.endpoint
    );
    run(&e.sql, &replay).await;
    let above = "select array_agg(p.due_at between s.low_due_at and postrider.now()) from postrider.pending p
                 join postrider.endpoint_state s using (endpoint_id) where p.event_id = any ($1)";
    let above = above.replace("$1", &format!("'{{{}}}'", events[1]));
    assert_eq!(one::<Vec<bool>>(&e.sql, &above).await, [true]);
    // The other was due before the key was put ahead by this test.
    let due = format!(
        "select due_at <= postrider.now() from postrider.pending where event_id = '{}'",
        events[0]
    );
    assert!(one::<bool>(&e.sql, &due).await);
}
