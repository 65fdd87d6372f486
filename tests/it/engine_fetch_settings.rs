//! fetch_deliveries: the settings of now, to the owner.

use uuid::Uuid;

use crate::fixtures::engine::{one, run};
use crate::fixtures::lane::Lane;

const PLENTY: i64 = 1_000_000;
#[tokio::test]
async fn settings_are_those_of_now() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let s = e.settings(lane.worker, lane.endpoint).await;
    for (name, value) in [
        ("rate", 10),
        ("burst", 10),
        ("concurrency", 5),
        ("connect_timeout_ms", 3000),
        ("request_timeout_ms", 10_000),
        ("pause_default_ms", 60_000),
        ("pause_min_ms", 1000),
        ("pause_max_ms", 86_400_000),
    ] {
        assert_eq!(s[name].as_f64(), Some(f64::from(value)), "{name}: {s}");
    }
    assert_eq!(s["pause_on_503"], true);
    assert_eq!(s["stopped"], false);
    assert_eq!(s["signature"], "stripe");
    let sql = format!(
        "select postrider.update_endpoint({}, url => 'https://moved.example/', rate => 2.5, burst => 3, concurrency => 1,
                                          policy => 'brisk', headers => '{{\"X-A\": \"b\"}}', signature => 'standard')",
        lane.endpoint
    );
    run(&e.sql, &sql).await;
    let s = e.settings(lane.worker, lane.endpoint).await;
    assert_eq!(s["rate"].as_f64(), Some(2.5));
    assert_eq!(s["burst"], 3);
    assert_eq!(s["concurrency"], 1);
    assert_eq!(s["request_timeout_ms"], 15_000);
    assert_eq!(s["url"], "https://moved.example/");
    assert_eq!(s["headers"]["X-A"], "b");
    assert_eq!(s["signature"], "standard");
    lane.verb("disable_endpoint").await;
    assert_eq!(
        e.settings(lane.worker, lane.endpoint).await["stopped"],
        true
    );
    lane.verb("enable_endpoint").await;
    lane.verb("delete_endpoint").await;
    assert_eq!(
        e.settings(lane.worker, lane.endpoint).await["stopped"],
        true
    );
}

#[tokio::test]
async fn secrets_come_newest_first_and_go_when_their_overlap_ends() {
    let lane = Lane::new("patient").await;
    let e = &lane.engine;
    lane.owe(1).await;
    let first: String = one(&e.sql, "select secret from postrider.endpoint_secrets").await;
    let rotate = async |overlap: &str| -> String {
        one(
            &e.sql,
            &format!(
                "select postrider.rotate_secret({}, '{overlap}')",
                lane.endpoint
            ),
        )
        .await
    };
    let secrets = async || e.settings(lane.worker, lane.endpoint).await["secrets"].clone();
    assert_eq!(secrets().await, serde_json::json!([first]));
    let second = rotate("1 hour").await;
    assert_eq!(secrets().await, serde_json::json!([second, first]));
    let third = rotate("2 hours").await;
    assert_eq!(secrets().await, serde_json::json!([third, second, first]));
    e.pass(3601).await;
    assert_eq!(secrets().await, serde_json::json!([third, second]));
    e.pass(3600).await;
    assert_eq!(secrets().await, serde_json::json!([third]));
    let fourth = rotate("0").await;
    assert_eq!(secrets().await, serde_json::json!([fourth]));
}

#[tokio::test]
async fn after_a_pause_by_the_ladder_it_is_probed_also_by_the_next_owner() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    lane.fail(10).await;
    e.pass(3601).await;
    let probing = async |worker: Uuid| e.settings(worker, lane.endpoint).await["probing"].clone();
    assert_eq!(probing(lane.worker).await, true);
    e.release(lane.worker, lane.endpoint, 0).await;
    let next = e.worker().await;
    assert_eq!(e.claim(next, 1).await, [lane.endpoint]);
    assert_eq!(probing(next).await, true);
    let found = e.fetch(next, &[lane.endpoint], 1, &[], PLENTY).await;
    let verdicts = e
        .report(next, &[lane.attempt(found[0].event, 200).number(2)])
        .await;
    assert!(!verdicts[0].probing);
    assert_eq!(probing(next).await, false);
}
