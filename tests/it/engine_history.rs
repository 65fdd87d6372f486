//! History never blocks state.

use crate::fixtures::engine::{count, run};
use crate::fixtures::lane::Lane;

/// After this, a batch still moves state and says that history was lost.
async fn survives(damage: &str, repair: &str) {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let events = lane.owe(4).await;
    run(&e.sql, damage).await;
    let batch = [
        lane.attempt(events[0], 200),
        lane.attempt(events[1], 500),
        lane.attempt(events[2], 429).wait(30.0),
    ];
    let verdict = lane.report(&batch).await;
    assert!(verdict.history_lost, "{damage}");
    assert_eq!(
        lane.ended(events[0]).await.as_deref(),
        Some("delivered"),
        "{damage}"
    );
    assert!(
        lane.owed::<bool>(events[1], "attempts = 1 and failures = 1")
            .await,
        "{damage}"
    );
    assert!(
        lane.owed::<bool>(events[2], "rate_limited = 1").await,
        "{damage}"
    );
    assert_eq!(lane.failures().await, 1, "{damage}");
    assert_eq!(lane.until("rate_limited_until").await, Some(30), "{damage}");
    run(&e.sql, repair).await;
    assert!(
        !lane
            .report(&[lane.attempt(events[3], 200)])
            .await
            .history_lost,
        "{repair}"
    );
}

#[tokio::test]
async fn g11_attempts_that_cannot_be_written_move_state_all_the_same() {
    survives(
        "alter table postrider.attempts rename to attempts_away",
        "alter table postrider.attempts_away rename to attempts",
    )
    .await;
    survives(
        "alter table postrider.attempts add constraint never check (seq < 0) not valid",
        "alter table postrider.attempts drop constraint never",
    )
    .await;
    // A day without a partition and without the default one.
    survives(
        "do $$ declare l text; begin
             for l in select inhrelid::regclass::text from pg_inherits where inhparent = 'postrider.attempts'::regclass loop
                 execute 'alter table postrider.attempts detach partition ' || l;
             end loop;
         end $$",
        "create table postrider.attempts_again partition of postrider.attempts default",
    )
    .await;
}

#[tokio::test]
async fn g11_statistics_that_cannot_be_written_move_state_all_the_same() {
    survives(
        "alter table postrider.endpoint_stats rename to away",
        "alter table postrider.away rename to endpoint_stats",
    )
    .await;
}

#[tokio::test]
async fn g11_an_owner_without_the_right_to_insert_moves_state_all_the_same() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let events = lane.owe(2).await;
    let role = format!("{}_owner", e.db.name());
    let sql = format!(
        "create role {role}; grant usage on schema postrider to {role};
         grant all on all tables in schema postrider to {role};
         grant execute on all functions in schema postrider to {role};
         revoke insert on postrider.attempts from {role};
         alter function postrider.report_attempts(uuid, bigint[], uuid[], bigint[], integer[], integer[], bigint[], integer[],
                                                  integer[], text[], text[], bigint[], text[]) owner to {role}"
    );
    run(&e.sql, &sql).await;
    assert!(
        lane.report(&[lane.attempt(events[0], 200)])
            .await
            .history_lost
    );
    assert_eq!(lane.ended(events[0]).await.as_deref(), Some("delivered"));
    // One part of history does not take the other with it.
    assert_eq!(
        count(&e.sql, "postrider.endpoint_stats where delivered = 1").await,
        1
    );
    run(
        &e.sql,
        &format!("grant insert on postrider.attempts to {role}"),
    )
    .await;
    assert!(
        !lane
            .report(&[lane.attempt(events[1], 200)])
            .await
            .history_lost
    );
    run(
        &e.sql,
        &format!(
            "reassign owned by {role} to current_user; drop owned by {role}; drop role {role}"
        ),
    )
    .await;
}

/// A report repeated because its history was lost does not move state again.
#[tokio::test]
async fn g11_lost_history_is_not_made_up_for_by_moving_twice() {
    let lane = Lane::new("brisk").await;
    let e = &lane.engine;
    let event = lane.owe(1).await[0];
    let attempt = [lane.attempt(event, 500)];
    run(
        &e.sql,
        "alter table postrider.attempts rename to attempts_away",
    )
    .await;
    assert!(lane.report(&attempt).await.history_lost);
    run(
        &e.sql,
        "alter table postrider.attempts_away rename to attempts",
    )
    .await;
    assert!(!lane.report(&attempt).await.history_lost);
    assert!(
        lane.owed::<bool>(event, "attempts = 1 and failures = 1")
            .await
    );
    assert_eq!(lane.failures().await, 1);
}
