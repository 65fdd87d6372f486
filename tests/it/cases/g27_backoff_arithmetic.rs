//! G27: no number of attempts, and no policy that can be stored, makes a retry delay wrap, fail or lie in the
//! past; and SQL agrees with a second computation of it.

use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::lane::Lane;
use crate::fixtures::postgres::TestDb;
use crate::fixtures::sql::{all, one, run};
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

const DAY: f64 = 86_400.0;

/// Seconds before retry `n`, computed a second way.
fn expected(base: f64, factor: f64, cap: f64, n: i32) -> f64 {
    let mut delay = base;
    for _ in 1..n.clamp(1, 100_000) {
        if delay >= cap || delay == 0.0 {
            break;
        }
        delay *= factor;
    }
    delay.min(cap)
}

#[tokio::test]
async fn g27_the_delay_is_right_for_every_n() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let policies = [
        (30.0, 2.0, 21_600.0),
        (30.0, 4.0, 120.0),
        (30.0, 1.0, 21_600.0),
        (0.0, 2.0, 21_600.0),
        (3_600.0, 2.0, 1.0),
        (30.0, 2.0, 0.0),
        (0.000_001, 100.0, 30.0 * DAY),
        (30.0 * DAY, 100.0, 30.0 * DAY),
    ];
    let ns = [
        i32::MIN,
        -1,
        0,
        1,
        2,
        3,
        9,
        10,
        11,
        30,
        31,
        62,
        63,
        64,
        1_100,
        i32::MAX,
    ];
    for (base, factor, cap) in policies {
        let mut before = 0.0;
        for n in ns {
            let sql = format!(
                "select extract(epoch from postrider._backoff(make_interval(secs => {base}), {factor},
                     make_interval(secs => {cap}), {n}))::float8"
            );
            let delay: f64 = one(&client, &sql).await;
            let right = expected(base, factor, cap, n);
            assert!(
                (delay - right).abs() <= 1e-6 * right.max(1.0),
                "{base} {factor} {cap} {n}: {delay} {right}"
            );
            assert!(delay >= before, "{base} {factor} {cap} {n}: not monotone");
            before = delay;
        }
    }
}

#[tokio::test]
async fn g27_a_factor_close_to_one_neither_overflows_nor_falls() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select count(*) from (
        select d, lag(d) over (order by n) as before from (
            select n, postrider._backoff('1 us', 1.0000001, '30 days', n) as d
            from generate_series(1::bigint, 2147483647, 1000003) s (g), lateral (select g::int) x (n)) t) u
        where d < before or d > '30 days' or d < '0'";
    assert_eq!(one::<i64>(&client, sql).await, 0);
}

#[tokio::test]
async fn g27_jitter_stays_between_zero_and_the_delay() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let sql = "select d from (
        select extract(epoch from postrider._retry_delay('30 s', 2, '6 h', 'full', 3))::float8 as d
        from generate_series(1, 2000)) x order by 1";
    let delays: Vec<f64> = all(&client, sql).await;
    assert!(delays[0] >= 0.0 && delays[1999] <= 120.0);
    assert!(
        delays[0] < 6.0 && delays[1999] > 114.0,
        "not spread over the whole range"
    );
    let mean = delays.iter().sum::<f64>() / 2000.0;
    assert!((50.0..70.0).contains(&mean), "{mean}");
    let sql = "select distinct postrider._retry_delay('30 s', 2, '6 h', 'none', 3)::text from generate_series(1, 9)";
    assert_eq!(all::<String>(&client, sql).await, ["00:02:00"]);
    let sql = "select count(*) from unnest('{-2147483648,0,2147483647}'::int[]) n
               where postrider._retry_delay('30 s', 2, '6 h', 'full', n) not between '0' and '6 h'";
    assert_eq!(one::<i64>(&client, sql).await, 0);
}

#[tokio::test]
async fn g27_the_preview_says_what_a_policy_means() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let last = "select format('%s %s %s %s', attempt, earliest, mean, latest)
                from postrider.retry_preview('{}') order by attempt desc limit 1";
    let of = |policy: &str| last.replace("{}", policy);
    assert_eq!(
        one::<String>(&client, &of("patient")).await,
        "10 00:00:00 02:07:45 04:15:30"
    );
    assert_eq!(
        one::<String>(&client, &of("brisk")).await,
        "3 00:02:30 00:02:30 00:02:30"
    );
    let sql = "select format('%s %s', attempt, latest) from postrider.retry_preview('brisk') order by attempt";
    assert_eq!(
        all::<String>(&client, sql).await,
        ["1 00:00:00", "2 00:00:30", "3 00:02:30"]
    );
    run(
        &client,
        "update postrider.policies set max_attempts = 100 where name = 'patient'",
    )
    .await;
    // 30 s to 4 h 16 min in ten doublings, then 6 h each.
    let hours: f64 = one(
        &client,
        "select max(extract(epoch from latest))::float8 / 3600 from postrider.retry_preview('patient')",
    )
    .await;
    assert!(
        (hours - (30_690.0 / 3600.0 + 89.0 * 6.0)).abs() < 1e-6,
        "{hours}"
    );
    run(
        &client,
        "update postrider.policies set max_attempts = 2147483647, backoff_base = '0' where name = 'patient'",
    )
    .await;
    let sql = "select count(*) from postrider.retry_preview('patient') where latest = '0'";
    assert_eq!(one::<i64>(&client, sql).await, 1000);
}

/// The extremes that a policy can hold, through the engine: the retry after the n-th failure is due when the
/// policy says, and never before now.
#[tokio::test]
async fn g27_a_failure_is_retried_when_its_policy_says() {
    let lane = Lane::new("patient").await;
    let sql = &lane.engine.sql;
    run(
        sql,
        "update postrider.policies set max_attempts = 2147483647, time_to_live = '30 days'",
    )
    .await;
    run(sql, "delete from postrider.policy_rungs").await;
    let policies = [
        ("'30 s', 2, '6 h'", "none", 21_600.0, 21_600.0),
        ("'30 s', 2, '6 h'", "full", 0.0, 21_600.0),
        ("'0', 100, '6 h'", "full", 0.0, 0.0),
        ("'1 h', 2, '1 s'", "none", 1.0, 1.0),
        ("'1 s', 2, '0'", "none", 0.0, 0.0),
        ("'1 us', 100, '29 days'", "none", 29.0 * DAY, 29.0 * DAY),
    ];
    for (policy, jitter, least, most) in policies {
        run(sql, &format!(
            "update postrider.policies set (backoff_base, backoff_factor, backoff_cap) = ({policy}), backoff_jitter = '{jitter}'"
        )).await;
        // The one after the last ends the delivery.
        for n in [31, 32, 63, 64, 1_100, i32::MAX - 1] {
            let event = lane.owe(1).await[0];
            run(
                sql,
                &format!("update postrider.pending set attempts = {n} - 1, failures = {n} - 1"),
            )
            .await;
            lane.report(&[lane.attempt(event, 500).number(n)]).await;
            let wait = "extract(epoch from due_at - postrider.now())::float8";
            let wait: f64 = lane.owed(event, wait).await;
            // As seen a moment later.
            assert!(
                wait > least - 5.0 && wait <= most + 1e-3,
                "{policy} {jitter} after {n}: {wait}"
            );
            run(sql, "delete from postrider.pending").await;
        }
    }
}

/// 30 days are more milliseconds than an int holds: the worker's timer does not fire at once.
#[tokio::test]
async fn g27_a_month_is_not_at_once() {
    let mut world = World::new(|_, _| Reply::status(500)).await;
    let month =
        r#"{"backoff_base": "30 days", "backoff_cap": "30 days", "time_to_live": "30 days"}"#;
    world.quick_policy("month", month).await;
    let endpoint = world.endpoint("/in", "policy => 'month'").await;
    world.worker();
    let event = world.emit("a").await;
    let failed = async || {
        world
            .delivery(event, endpoint)
            .await
            .filter(|d| d.failures == 1)
    };
    eventually(LIMIT, failed).await;
    // The endpoint is held for three seconds after its last request, and looked at again.
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(world.receiver.requests().len(), 1);
    let sql = "select extract(epoch from due_at - now())::float8 from postrider.pending";
    assert!(world.one::<f64>(sql, &[]).await > 29.9 * DAY);
}
