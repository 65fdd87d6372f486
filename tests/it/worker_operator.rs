//! What a person changes takes effect on a running worker within a second.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::fixtures::arrivals::{assert_once_each, assert_pace, between};
use crate::fixtures::eventually;
use crate::fixtures::http::Reply;
use crate::fixtures::worker::{LIMIT, ms};
use crate::fixtures::world::World;

/// What the contract grants, and the way to us.
const EFFECT: Duration = ms(1000 + 150);

/// Endpoints with a steady flow of requests each, and then everything at once that a person may do.
async fn changes_take_effect(notify: bool) {
    let mut world = World::new(|_, _| Reply::status(200)).await;
    world
        .run(&format!("update postrider.settings set notify = {notify}"))
        .await;
    let mut ids = HashMap::new();
    for path in [
        "/pause", "/disable", "/delete", "/move", "/slower", "/faster",
    ] {
        let rate = if path == "/faster" { 5 } else { 20 };
        let settings = format!("rate => {rate}, burst => 1");
        ids.insert(path, world.endpoint(path, &settings).await);
    }
    world.worker();
    world.worker();
    world.emit_many("a", 300).await;
    for path in ids.keys() {
        world.arrived(path, 3).await;
    }
    let moved = world.receiver.url("/moved");
    let (pause, disable, delete) = (ids["/pause"], ids["/disable"], ids["/delete"]);
    let (go, slower, faster) = (ids["/move"], ids["/slower"], ids["/faster"]);
    let changes = [
        format!("select postrider.pause_endpoint({pause}, reason => 'test')"),
        format!("select postrider.disable_endpoint({disable}, reason => 'test')"),
        format!("select postrider.delete_endpoint({delete})"),
        format!("select postrider.update_endpoint({go}, url => '{moved}')"),
        format!("select postrider.update_endpoint({slower}, rate => 4)"),
        format!("select postrider.update_endpoint({faster}, rate => 40)"),
    ];
    let mut done = Instant::now();
    for change in &changes {
        done = world.run(change).await;
    }
    // There is no event to wait for: what must not happen needs its time.
    let (from, to) = (done + EFFECT, done + EFFECT + ms(1500));
    tokio::time::sleep_until(to.into()).await;
    let seen = |path| between(&world.receiver.requests_to(path), from, to);
    for path in ["/pause", "/disable", "/delete", "/move"] {
        assert_eq!(seen(path), 0, "{path} goes on");
    }
    assert!((20..=35).contains(&seen("/moved")), "{}", seen("/moved"));
    assert!((3..=8).contains(&seen("/slower")), "{}", seen("/slower"));
    assert!(seen("/faster") >= 30, "{}", seen("/faster"));
    let state = "select state from postrider.endpoint_health where endpoint_id = $1";
    assert_eq!(world.one::<String>(state, &[&pause]).await, "paused");
    assert_eq!(world.one::<String>(state, &[&disable]).await, "disabled");

    // And back: at the next poll, a second here, when there are no notifications.
    let back = if notify { EFFECT } else { EFFECT + ms(1000) };
    let undo = [
        (
            "/pause",
            format!("select postrider.resume_endpoint({pause})"),
        ),
        (
            "/disable",
            format!("select postrider.enable_endpoint({disable})"),
        ),
    ];
    for (path, undo) in undo {
        let before = world.receiver.requests_to(path).len();
        let undone = world.run(&undo).await;
        let requests = world.arrived(path, before + 1).await;
        let took = requests[before].arrived.saturating_duration_since(undone);
        assert!(took < back, "{path}: {took:?}");
    }
    // What was owed to the deleted one ends, by and by, and visibly.
    let maintain = "select postrider.maintain()";
    let owed = "select count(*) from postrider.pending where endpoint_id = $1";
    eventually(LIMIT, async || {
        world.run(maintain).await;
        (world.one::<i64>(owed, &[&delete]).await == 0).then_some(())
    })
    .await;
    let ended = "select array_agg(distinct status order by status), count(*) from postrider.finished where endpoint_id = $1";
    let row = world.sql.query_one(ended, &[&delete]).await.unwrap();
    let (statuses, count): (Vec<String>, i64) = (row.get(0), row.get(1));
    assert_eq!(
        (&statuses[..], count),
        (&["cancelled".to_owned(), "delivered".to_owned()][..], 300)
    );
    let paused = world.receiver.requests_to("/pause");
    assert_pace(&paused, 20.0, 1);
    assert_once_each(&paused, paused.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_take_effect_within_a_second() {
    changes_take_effect(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_take_effect_within_a_second_without_notifications() {
    changes_take_effect(false).await;
}
