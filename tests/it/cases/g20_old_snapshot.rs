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

/// A transaction that keeps every row that dies after it.
async fn old_snapshot(e: &Engine) -> Client {
    let old = e.session().await;
    let begin = "begin isolation level repeatable read; select 1 from postrider.settings";
    run(&old, begin).await;
    old
}

/// Keys of outbox: far, near, how many seconds from now near holds, and how many ago the sweep took its one step.
fn keep(far: &str, near: (f64, &str), swept_s: f64) -> String {
    format!(
        "select set_config('postrider.outbox_keys', concat_ws('|', '{far}', '{}', t.now + {}, '', 1, t.now - {swept_s}, t.now - {swept_s}, 0), false)
           from (select extract(epoch from clock_timestamp()) as now) t",
        near.1, near.0
    )
}

const LOWEST: &str = "00000000-0000-0000-0000-000000000000";
const HIGHEST: &str = "ffffffff-ffff-7fff-bfff-ffffffffffff";

/// The far key of this session.
const FAR: &str = "select split_part(current_setting('postrider.outbox_keys'), '|', 1)";

/// Near lasts, however slow this machine is: some seconds without it cost a walk, which is not the case here.
const LAST: &str = "select set_config('postrider.outbox_keys',
               array_to_string(k.kept[1:2] || (extract(epoch from clock_timestamp()) + 0.9)::text || k.kept[4:9], '|'), false)
    from (select string_to_array(nullif(current_setting('postrider.outbox_keys', true), ''), '|')) k (kept)
   where k.kept is not null";

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
    let e = &Engine::new().await;
    for _ in 0..ENDPOINTS {
        e.endpoint("").await;
    }
    let worker = e.worker().await;
    let old = old_snapshot(e).await;
    let mut rounds = Vec::new();
    for n in 0..deliveries / (EVENTS * ENDPOINTS) {
        rounds.push(round(e, worker, n).await);
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
    let after: Vec<Round> = [round(e, worker, 0).await, round(e, worker, 1).await].into();
    println!("without it: {after:?}");
    assert!(after[1]["fetch"].0 <= 2 * first[1]["fetch"].0 + 2000);
}

/// Each endpoint that is claimed and given up leaves dead entries in the index of marks.
#[tokio::test]
async fn g20_claims_of_endpoints_that_come_and_go_cost_the_same() {
    const MANY: usize = 50;
    let e = &Engine::new().await;
    let mut endpoints = Vec::new();
    for _ in 0..MANY {
        endpoints.push(e.endpoint("").await);
    }
    let worker = e.worker().await;
    let old = old_snapshot(e).await;
    let release = format!(
        "select postrider.release_endpoints('{worker}', array(select endpoint_id from postrider.endpoint_state), array_fill(0::bigint, array[{MANY}]))"
    );
    // However slow this machine is.
    let last = "select set_config('postrider.low_claim', extract(epoch from clock_timestamp()) + 4 || '|' || split_part(kept, '|', 2), false)
                  from current_setting('postrider.low_claim', true) kept where kept <> ''";
    let mut costs = Vec::new();
    for _ in 0..100 {
        run(
            &e.sql,
            "update postrider.endpoint_state set next_claim_at = postrider.now()",
        )
        .await;
        e.pass(2).await;
        run(&e.sql, last).await;
        let mut round = Round::new();
        let claimed = measured(&e.sql, &mut round, "claim", e.claim(worker, 100)).await;
        assert_eq!(claimed.len(), MANY);
        costs.push(round["claim"].0);
        let kept: Vec<i64> = all(&e.sql, &release).await;
        assert!(kept.is_empty());
    }
    let (walks, last) = costs.split_at(costs.len() - 10);
    let (most, last) = (walks.iter().max().unwrap(), last.iter().max().unwrap());
    assert!(*last < 500, "at most {most}, then {last}");
    run(&old, "commit").await;
}

/// What a low key hides is found when the next scan is from the beginning: an event that became visible late.
#[tokio::test]
async fn g20_what_lies_below_a_low_key_is_found_soon() {
    let e = &Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    // A key of the clock's: one ahead of it is of no use.
    let now = "select postrider._uuid_floor(postrider.now())::text";
    e.emit("'a.b', '{}'").await;
    e.pass(3).await;
    let key: String = one(&e.sql, now).await;
    run(&e.sql, &keep(&key, (0.0, &key), 0.0)).await;
    assert_eq!(e.step(worker).await.0, 0);
    eventually(LIMIT, async || (e.step(worker).await.0 == 1).then_some(())).await;
    // Kept before the clock was set back: whether a key says so, the end of one, or the times of the sweep.
    for keep in [
        keep(HIGHEST, (0.5, HIGHEST), 0.0),
        keep(LOWEST, (6.0, &key), 0.0),
        keep(&key, (0.5, &key), -3600.0),
    ] {
        e.emit("'a.b', '{}'").await;
        run(&e.sql, "update postrider.outbox set event_id = postrider._uuid_floor(postrider._uuid_time(event_id) - interval '2 s')").await;
        run(&e.sql, &keep).await;
        let found: i64 = one(
            &e.sql,
            "select cardinality(postrider._outbox_head(10))::bigint",
        )
        .await;
        assert_eq!(found, 1, "{keep}");
        run(&e.sql, "delete from postrider.outbox").await;
    }
}

/// The sweep below a low key takes a bounded step a call, and does not leave a window in which it found something.
#[tokio::test]
async fn g20_what_lies_below_a_low_key_is_swept_in_steps() {
    let e = &Engine::new().await;
    let old = old_snapshot(e).await;
    let dead = "insert into postrider.outbox (event_id)
                select postrider._uuid_v7(postrider.now() - i * interval '1 ms') from generate_series(1, 60000) i;
                delete from postrider.outbox";
    run(&e.sql, dead).await;
    let late = "insert into postrider.outbox (event_id) values (postrider._uuid_v7(postrider.now() - interval '40 s'))";
    run(&e.sql, late).await;
    // As if the last step were so long ago that a millisecond's is due.
    let step = "select cardinality(s.events)::bigint, set_config('postrider.sweep', array_to_string(s.sweep, '|'), false)
                  from postrider._sweep_outbox(postrider._uuid_floor(postrider.now()),
                           (select k.kept[1:2] || (extract(epoch from clock_timestamp()) - 0.021)::text || k.kept[4:6]
                              from (select string_to_array(current_setting('postrider.sweep'), '|')) k (kept)), 10) s";
    run(&e.sql, "set postrider.sweep = '|0|0|0|0'").await;
    let (mut found, mut walked) = (0, 0);
    let ended = eventually(LIMIT, async || {
        let mut round = Round::new();
        let events: i64 = measured(&e.sql, &mut round, "step", one(&e.sql, step)).await;
        found += events;
        assert!(round["step"].0 < 30_000, "{round:?} at once");
        walked += round["step"].0;
        match found {
            // The caller may have taken none.
            0 => assert!(walked < 50_000, "passed what was there"),
            3 => run(&e.sql, "delete from postrider.outbox").await,
            _ => {}
        }
        let sweep: String = one(&e.sql, "select current_setting('postrider.sweep')").await;
        sweep.starts_with('|').then_some(sweep)
    })
    .await;
    assert_eq!(found, 3);
    assert!((60_000..80_000).contains(&walked), "{ended}: {walked}");
    run(&old, "commit").await;
}

/// A burst that was emitted in a transaction which committed late is taken from on to on, not over itself each time.
#[tokio::test]
async fn g20_a_late_burst_costs_what_it_holds() {
    const LATE: i64 = 20_000;
    let e = &Engine::new().await;
    let old = old_snapshot(e).await;
    let late = format!(
        "insert into postrider.outbox (event_id)
         select postrider._uuid_v7(postrider.now() - interval '100 s' - i * interval '0.2 ms') from generate_series(1, {LATE}) i"
    );
    run(&e.sql, &late).await;
    let step = "with s as (select * from postrider._sweep_outbox(postrider._uuid_floor(postrider.now()),
                           (select k.kept[1:2] || (extract(epoch from clock_timestamp()) - 0.1)::text || k.kept[4:6]
                              from (select string_to_array(current_setting('postrider.sweep'), '|')) k (kept)), 1000)),
                     kept as materialized (select set_config('postrider.sweep', array_to_string(s.sweep, '|'), false) from s),
                     taken as (delete from postrider.outbox o using s where o.event_id = any (s.events) returning o.event_id)
                select (select count(*) from taken) + 0 * (select count(*) from kept)";
    run(&e.sql, "set postrider.sweep = '|0|0|0|0|'").await;
    let (mut taken, mut walked) = (0, 0);
    eventually(LIMIT, async || {
        let mut round = Round::new();
        taken += measured(&e.sql, &mut round, "step", one::<i64>(&e.sql, step)).await;
        walked += round["step"].0;
        let sweep: String = one(&e.sql, "select current_setting('postrider.sweep')").await;
        sweep.starts_with('|').then_some(())
    })
    .await;
    assert_eq!(taken, LATE);
    // Each once alive, once to be deleted, once dead.
    assert!(walked < 5 * LATE, "{walked}");
    run(&old, "commit").await;
}

/// Windows grow where little is, and may then meet much at once.
#[tokio::test]
async fn g20_a_step_that_took_long_makes_the_next_wait() {
    let e = &Engine::new().await;
    let old = old_snapshot(e).await;
    let dead = "insert into postrider.outbox (event_id)
                select postrider._uuid_v7(postrider.now() - interval '1000 s' - i * interval '0.01 ms') from generate_series(1, 60000) i;
                delete from postrider.outbox";
    run(&e.sql, dead).await;
    // As if the last step had ended 21 ms ago: a millisecond's is due.
    let step = "select set_config('postrider.sweep', array_to_string(s.sweep, '|'), false)
                  from string_to_array(current_setting('postrider.sweep'), '|') k,
                       postrider._sweep_outbox(postrider._uuid_floor(postrider.now()),
                           k[1:2] || (extract(epoch from clock_timestamp()) - 0.021)::text || k[4:6], 10) s";
    let began = "select set_config('postrider.sweep', '|0|' || extract(epoch from clock_timestamp()) - 0.021 || '|0|0|', false)";
    run(&e.sql, began).await;
    let took = eventually(LIMIT, async || {
        let mut round = Round::new();
        measured(&e.sql, &mut round, "step", one::<String>(&e.sql, step)).await;
        let (walked, took) = round["step"];
        (walked > 30_000).then_some(took)
    })
    .await;
    let rests = "select split_part(current_setting('postrider.sweep'), '|', 3)::float8 - extract(epoch from clock_timestamp())::float8";
    let rests: f64 = one(&e.sql, rests).await;
    assert!(rests > took.as_secs_f64(), "{rests} s after {took:?}");
    run(&old, "commit").await;
}

/// What a near key hides is found when it ends, though newer events are found above it all the time.
#[tokio::test]
async fn g20_what_lies_below_the_near_key_is_found_within_a_second() {
    let e = &Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    let other = e.session().await;
    let late: Uuid = {
        run(&other, "begin").await;
        one(&other, "select postrider.emit_event('a.b', '{}')").await
    };
    e.pass(2).await;
    let key = "select postrider._uuid_floor(postrider.now() - interval '1 s')::text";
    let key: String = one(&e.sql, key).await;
    run(&other, "commit").await;
    e.emit("'a.b', '{}'").await;
    run(&e.sql, &keep(LOWEST, (0.9, &key), 0.0)).await;
    let began = Instant::now();
    let waits = format!("postrider.outbox where event_id = '{late}'");
    assert_eq!(e.step(worker).await.0, 1);
    // If this machine was quick enough for it to hold.
    assert!(count(&e.sql, &waits).await == 1 || began.elapsed() > Duration::from_millis(800));
    eventually(LIMIT, async || {
        e.emit("'a.b', '{}'").await;
        e.step(worker).await;
        (count(&e.sql, &waits).await == 0).then_some(())
    })
    .await;
}

/// An event that became visible late moves a low key; it does not end it, or each such event would cost a walk.
#[tokio::test]
async fn g20_a_low_key_survives_what_was_emitted_before_and_committed_after() {
    let e = &Engine::new().await;
    e.endpoint("").await;
    let worker = e.worker().await;
    let other = e.session().await;
    run(&other, "begin; select postrider.emit_event('a.b', '{}')").await;
    e.pass(30).await;
    e.emit("'a.b', '{}'").await;
    let keep = keep(LOWEST, (0.0, LOWEST), 0.0);
    run(&e.sql, &keep).await;
    assert_eq!(e.step(worker).await.0, 1);
    run(&other, "commit").await;
    let before: String = one(&e.sql, FAR).await;
    // It lies below the key, and so is found by the sweep; a key below it finds it at once.
    run(&e.sql, &keep).await;
    assert_eq!(e.step(worker).await.0, 1);
    let after: String = one(&e.sql, FAR).await;
    assert!(
        !after.is_empty() && after < before,
        "{before}, then {after:?}"
    );
}

/// A row that each report updated would be walked in all its versions by the next.
#[tokio::test]
async fn g20_many_small_reports_cost_the_same_behind_an_old_snapshot() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    let events = lane.owe(600).await;
    let old = old_snapshot(e).await;
    // But for pending, whose low keys are raised only where they save some hundred entries.
    let walked = format!("{WALKED} and c.relname <> 'pending'");
    let mut costs = Vec::new();
    for event in events {
        run(&e.sql, "begin").await;
        let start: i64 = one(&e.sql, &walked).await;
        lane.report(&[lane.attempt(event, 200)]).await;
        costs.push(one::<i64>(&e.sql, &walked).await - start);
        run(&e.sql, "commit").await;
    }
    let (before, after) = (costs[..50].iter().max(), costs[550..].iter().max());
    let (before, after) = (*before.unwrap(), *after.unwrap());
    assert!(after <= before + 10, "walks {before}, then {after}");
    run(&old, "commit").await;
    let sum = "select sum(delivered)::bigint from postrider.endpoint_stats";
    assert_eq!(one::<i64>(&e.sql, sum).await, 600);
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
    let above = async |event: Uuid| -> bool {
        let sql = "select p.due_at between (select max(k.low_due_at) from postrider.low_keys k) and postrider.now()
                     from postrider.pending p where p.event_id = ";
        one(&e.sql, &format!("{sql}'{event}'")).await
    };
    let ahead = format!(
        "insert into postrider.low_keys values ({}, postrider.now() + interval '4 days')",
        lane.endpoint
    );
    run(&e.sql, &ahead).await;
    lane.report(&[lane.attempt(events[0], 500), lane.attempt(events[1], 404)])
        .await;
    assert!(above(events[0]).await);
    run(&e.sql, &ahead).await;
    let replay = format!(
        "select postrider.replay_delivery('{}', {})",
        events[1], lane.endpoint
    );
    run(&e.sql, &replay).await;
    assert!(above(events[1]).await);
}
