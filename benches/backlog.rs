//! Whether claim, fetch and report cost more when more is owed: buffers and time, by size of the backlog.

use postrider::db::Db;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use crate::shared::cluster::Cluster;
use crate::shared::table::{self, Report};
use crate::shared::{Result, scale};

/// Deliveries owed, and endpoints that owe them; nine in ten are paused.
const SIZES: [(u32, u32); 4] = [
    (1000, 10),
    (100_000, 1000),
    (1_000_000, 10_000),
    (5_000_000, 100_000),
];
/// The same at each size: one endpoint and 20 deliveries of it; the smallest backlog has no more than these.
const BATCH: i32 = 20;
const ROUNDS: usize = 5;

const CLAIM: &str = "select * from postrider.claim_endpoints($1, 1, false)";
const FETCH: &str = "select * from postrider.fetch_deliveries($1, $2, $3, '{}', '{}', 8000000)";
const REPORT: &str = "select * from postrider.report_attempts($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $10)";

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// What one call cost.
#[derive(Clone, Copy, Default)]
struct Cost {
    buffers: f64,
    ms: f64,
}

pub async fn run(report: &mut Report) -> Result<()> {
    report.note(format_args!(
        "nine in ten endpoints paused; claim one endpoint, fetch {BATCH} of it, report them, {ROUNDS} times, \
         the first unmeasured; medians by EXPLAIN (ANALYZE, BUFFERS), per delivery"
    ));
    let mut seen = Vec::new();
    for (owed, endpoints) in SIZES {
        let owed = scale::count(owed).max(1000);
        let endpoints = scale::count(endpoints).clamp(10, owed / 20);
        let cost = measure(owed, endpoints).await?;
        for (call, cost) in ["claim", "fetch", "report"].into_iter().zip(cost) {
            let of = format!("{call}, {owed} owed by {endpoints}");
            report.shown(format_args!("{of}: buffers"), cost.buffers, "");
            report.shown(format_args!("{of}: time"), cost.ms * 1e3, "µs");
        }
        seen.push(cost);
    }
    let all = |of: fn(&Cost) -> f64| {
        let sums = seen.iter().map(|calls| calls.iter().map(of).sum::<f64>());
        let (least, most) = sums.fold((f64::INFINITY, 0.0_f64), |(l, m), s| (l.min(s), m.max(s)));
        most / least
    };
    report.at_most("most buffers of the fewest", all(|c| c.buffers), 2.0, "×");
    report.at_most("longest time of the shortest", all(|c| c.ms), 2.0, "×");
    Ok(())
}

async fn measure(owed: u32, endpoints: u32) -> Result<[Cost; 3]> {
    let cluster = Cluster::start().await?;
    fill(&cluster, owed, endpoints).await?;
    let db = Db::new(cluster.database().pool(1)?);
    let worker: Uuid = cluster
        .one("select worker from postrider.register_worker('bench', '0') limit 1")
        .await?;
    let mut rounds = Vec::new();
    for n in 0..ROUNDS {
        rounds.push(round(&cluster, &db, worker, i64::try_from(n)?).await?);
    }
    let mut cost = [Cost::default(); 3];
    for (i, cost) in cost.iter_mut().enumerate() {
        let of = |what: fn(&Cost) -> f64| median(rounds.iter().skip(1).map(|r| what(&r[i])));
        cost.buffers = of(|c| c.buffers) / f64::from(BATCH);
        cost.ms = of(|c| c.ms) / f64::from(BATCH);
    }
    Ok(cost)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Owes each endpoint the same number of deliveries, due for an hour.
async fn fill(cluster: &Cluster, owed: u32, endpoints: u32) -> Result<()> {
    table::progress(format_args!("making {endpoints} endpoints that owe {owed}"));
    cluster
        .endpoints(
            "http://127.0.0.1",
            "none",
            endpoints,
            "policy => 'unlimited'",
        )
        .await?;
    let events = owed / endpoints;
    // Rows as fan_out and pauses leave them, made set-wise, since calls would take an hour.
    let sql = format!(
        "insert into postrider.events (id, tenant, event_type, body, created_at)
             select postrider._uuid_v7(clock_timestamp()), 'default', 'bench', repeat('1', 1024), clock_timestamp()
               from generate_series(1, {events});
         insert into postrider.pending (event_id, endpoint_id, due_at, expires_at)
             select v.id, s.endpoint_id, now() - interval '1 h', now() + interval '1 day'
               from postrider.events v cross join postrider.endpoint_state s;
         update postrider.endpoint_state
            set paused_until = case when endpoint_id % 10 <> 0 then now() + interval '1 day' end,
                next_claim_at = case when endpoint_id % 10 <> 0 then now() + interval '1 day'
                                     else now() - interval '1 h' + endpoint_id * interval '1 us' end"
    );
    cluster.run(&sql).await?;
    table::progress("");
    cluster.settle_down().await
}

async fn round(cluster: &Cluster, db: &Db, worker: Uuid, n: i64) -> Result<[Cost; 3]> {
    let claim = explain(cluster, CLAIM, &[&worker]).await?;
    let owned = format!(
        "select array_agg(endpoint_id) from postrider.endpoint_state where owner = '{worker}'"
    );
    let owned: Vec<i64> = cluster.one(&owned).await?;
    let limits = vec![BATCH; owned.len()];
    let fetch = explain(cluster, FETCH, &[&worker, &owned, &limits]).await?;
    // A fetch marks nothing, so it may be repeated to see what it brought.
    let rows = cluster
        .sql
        .query(FETCH, &[&worker, &owned, &limits])
        .await?;
    let events: Vec<Uuid> = rows.iter().filter_map(|r| r.get("event_id")).collect();
    if owned.len() != 1 || events.len() != BATCH as usize {
        return Err(format!("{} endpoints and {} deliveries", owned.len(), events.len()).into());
    }
    let size = events.len();
    let of = vec![owned[0]; size];
    let seqs: Vec<i64> = (0..i64::from(BATCH))
        .map(|i| n * i64::from(BATCH) + i + 1)
        .collect();
    let (ones, zeros) = (vec![1_i32; size], vec![0_i64; size]);
    let (statuses, texts) = (vec![200_i32; size], vec![None::<String>; size]);
    let waits = vec![None::<i64>; size];
    let params: Params<'_> = &[
        &worker, &seqs, &events, &of, &ones, &ones, &zeros, &ones, &statuses, &texts, &waits,
    ];
    let report = explain(cluster, REPORT, params).await?;
    let left = db
        .release(worker, &[(owned[0], std::time::Duration::ZERO)])
        .await?;
    if !left.is_empty() {
        return Err("the endpoint could not be released".into());
    }
    // The next round wants a full batch.
    let spent = format!(
        "update postrider.endpoint_state set paused_until = now() + interval '1 day', next_claim_at = now() + interval '1 day'
          where endpoint_id = {} and (select count(*) from postrider.pending p where p.endpoint_id = {0}) < {BATCH}",
        owned[0]
    );
    cluster.run(&spent).await?;
    Ok([claim, fetch, report])
}

/// Runs it for good; what it cost, nested statements included.
async fn explain(cluster: &Cluster, sql: &str, params: Params<'_>) -> Result<Cost> {
    let sql = format!("explain (analyze, buffers, timing off, format json) {sql}");
    let row = cluster.sql.query_one(&sql, params).await?;
    let all: serde_json::Value = row.try_get(0)?;
    let number = |path: &str| all.pointer(path).and_then(serde_json::Value::as_f64);
    let buffers = ["Hit", "Read"].map(|kind| number(&format!("/0/Plan/Shared {kind} Blocks")));
    match (buffers, number("/0/Execution Time")) {
        ([Some(hit), Some(read)], Some(ms)) => Ok(Cost {
            buffers: hit + read,
            ms,
        }),
        _ => Err(format!("unknown plan: {all}").into()),
    }
}
