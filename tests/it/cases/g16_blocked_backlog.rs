//! G16: the backlog of an endpoint that is stopped or saturated costs the others nothing, in time and in pages
//! read. `G16_DELIVERIES=200000` runs it at the case's full size.

use std::collections::BTreeMap;
use std::time::Instant;

use uuid::Uuid;

use crate::fixtures::arrivals::median;
use crate::fixtures::backlog::{owe, size};
use crate::fixtures::engine::{Engine, all, one, run};
use crate::fixtures::http::Reply;
use crate::fixtures::worker::ms;
use crate::fixtures::world::World;

/// With a paused and a saturated backlog in front of it, an idle endpoint is served as ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g16_backlogs_delay_nobody_else() {
    let mut world = World::alone(|_, _| Reply::status(200).after(ms(5))).await;
    let paused = world.endpoint("/paused", "event_types => '{paused}'").await;
    world
        .run(&format!("select postrider.pause_endpoint({paused})"))
        .await;
    let settings = "event_types => '{saturated}', rate => 50, burst => 1";
    let saturated = world.endpoint("/saturated", settings).await;
    world.endpoint("/in", "event_types => '{a}'").await;
    let size = size("G16_DELIVERIES", 20_000);
    owe(&world.sql, paused, size).await;
    owe(&world.sql, saturated, size / 4).await;
    world.worker();
    world.arrived("/saturated", 5).await;
    let mut took = Vec::new();
    for _ in 0..20 {
        let before = Instant::now();
        let event = world.emit("a").await;
        let request = world.arrival("/in", event).await;
        took.push(request.arrived.duration_since(before));
        tokio::time::sleep(ms(50)).await;
    }
    took.sort();
    println!(
        "beside backlogs: median {:?}, worst {:?}",
        median(took.clone()),
        took[19]
    );
    assert!(took[18] < ms(500), "{took:?}");
    assert!(world.receiver.requests_to("/paused").is_empty());
}

/// Pages that running a query reads, cached or not, in all that it calls.
async fn pages(e: &Engine, query: &str) -> i64 {
    let sql = format!("explain (analyze, buffers, format json) {query}");
    let plan: serde_json::Value = one(&e.sql, &sql).await;
    let plan = &plan[0]["Plan"];
    plan["Shared Hit Blocks"].as_i64().unwrap() + plan["Shared Read Blocks"].as_i64().unwrap()
}

/// What a delivery to an idle endpoint costs, call by call; the middle of several.
async fn costs(e: &Engine, worker: Uuid, idle: i64, busy: i64) -> BTreeMap<&'static str, i64> {
    let mut costs: BTreeMap<&'static str, Vec<i64>> = BTreeMap::new();
    for _ in 0..9 {
        let emit = format!("select postrider.emit_event('a.b', '{{}}', endpoint_id => {idle})");
        let event: Uuid = one(&e.sql, &emit).await;
        let fetch = |id, limit| {
            format!(
                "select postrider.fetch_deliveries('{worker}', '{{{id}}}', '{{{limit}}}', '{{}}', '{{}}', 1000000)"
            )
        };
        for (name, query) in [
            ("fan_out", format!("select postrider.fan_out('{worker}')")),
            ("claim", format!("select postrider.claim_endpoints('{worker}', 10)")),
            ("fetch", fetch(idle, 10)),
            ("fetch of the backlog", fetch(busy, 10)),
            (
                "report",
                format!("select postrider.report_attempts('{worker}', array[(random() * 1e15)::bigint], '{{{event}}}', '{{{idle}}}',
                             '{{1}}', '{{1}}', '{{0}}', '{{1}}', '{{200}}', '{{null}}', '{{null}}', '{{null}}', '{{null}}')"),
            ),
            ("release", format!("select postrider.release_endpoints('{worker}', '{{{idle}}}', '{{0}}')")),
        ] {
            let cost = pages(e, &query).await;
            costs.entry(name).or_default().push(cost);
        }
        assert_eq!(e.ended(event, idle).await.as_deref(), Some("delivered"));
    }
    let middle = |mut all: Vec<i64>| {
        all.sort_unstable();
        all[all.len() / 2]
    };
    costs
        .into_iter()
        .map(|(name, all)| (name, middle(all)))
        .collect()
}

/// However an endpoint is stopped, and for one that is busy in another worker's or one's own hands.
#[tokio::test]
async fn g16_no_call_reads_more_pages_for_a_longer_backlog_of_others() {
    let e = Engine::new().await;
    let mut stopped = Vec::new();
    for stop in [
        "paused_until = 'infinity'",
        "rate_limited_until = postrider.now() + interval '1 day'",
        "rung = 1, ladder_paused_until = postrider.now() + interval '1 day'",
        "lapsed_until = postrider.now() + interval '1 day'",
        "disabled_at = postrider.now(), next_claim_at = null",
    ] {
        let endpoint = e.endpoint("").await;
        let sql =
            format!("update postrider.endpoint_state set {stop} where endpoint_id = {endpoint}");
        run(&e.sql, &sql).await;
        stopped.push(endpoint);
    }
    let (busy, elsewhere, idle) = (
        e.endpoint("").await,
        e.endpoint("").await,
        e.endpoint("").await,
    );
    let (worker, other) = (e.worker().await, e.worker().await);
    for (endpoint, owner) in [(busy, worker), (elsewhere, other)] {
        owe(&e.sql, endpoint, 10).await;
        assert_eq!(e.claim(owner, 10).await, [endpoint]);
    }
    let grow = async |to: u32| {
        for endpoint in &stopped {
            owe(&e.sql, *endpoint, to / 5).await;
        }
        for endpoint in [busy, elsewhere] {
            owe(&e.sql, endpoint, to / 8).await;
        }
    };
    grow(1000).await;
    costs(&e, worker, idle, busy).await;
    let small = costs(&e, worker, idle, busy).await;
    grow(size("G16_DELIVERIES", 20_000)).await;
    let large = costs(&e, worker, idle, busy).await;
    println!("pages with a backlog of 1,000: {small:?}; then {large:?}");
    for (name, pages) in &large {
        // Descents of indexes that grew, ten for the bodies alone, and what this test itself left dead. Walking the
        // backlog would be hundreds.
        assert!(
            *pages <= 2 * small[name] + 40,
            "{name}: {small:?}, then {large:?}"
        );
    }
    let owned =
        format!("select endpoint_id from postrider.endpoint_state where owner = '{worker}'");
    assert_eq!(
        all::<i64>(&e.sql, &owned).await,
        [busy],
        "nothing that is stopped is claimed"
    );
}
