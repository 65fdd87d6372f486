//! Upgrading: who meets whom, and what must not wait.

use std::time::Duration;

use postrider::schema::{self, Migrated, Release, State};

use crate::fixtures::bundles::{fingerprint, with_migration, with_sql};
use crate::fixtures::eventually;
use crate::fixtures::postgres::TestDb;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_newer_schema_is_left_alone() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("update postrider.install set release = '{999,0,0}'")
        .await
        .unwrap();
    let before = fingerprint(&client).await;
    let bundle = with_sql(
        "new.sql",
        "create function postrider.new_verb() returns int return 1",
    );
    let found = Release(vec![999, 0, 0]);
    let newer = Migrated::Newer {
        found: found.clone(),
    };
    assert_eq!(
        schema::install(&db.database(), &bundle).await.unwrap(),
        newer
    );
    assert_eq!(fingerprint(&client).await, before);
    let state = State::Newer {
        found: found.clone(),
        supported: true,
    };
    assert_eq!(schema::check(&client).await.unwrap(), state);
    client
        .batch_execute("update postrider.install set oldest_worker = release")
        .await
        .unwrap();
    let state = State::Newer {
        found,
        supported: false,
    };
    assert_eq!(schema::check(&client).await.unwrap(), state);
}

#[tokio::test]
async fn an_older_schema_is_upgraded() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    client
        .batch_execute("update postrider.install set release = '{0,0,9}'")
        .await
        .unwrap();
    let found = Release(vec![0, 0, 9]);
    assert_eq!(
        schema::check(&client).await.unwrap(),
        State::Older {
            found: found.clone()
        }
    );
    let done = schema::migrate(&db.database()).await.unwrap();
    assert_eq!(done, Migrated::Upgraded { from: found });
    assert_eq!(schema::check(&client).await.unwrap(), State::Current);
}

#[tokio::test]
async fn an_edited_migration_is_refused() {
    let db = TestDb::new().await;
    let first = with_migration("V999__probe.sql", "create table postrider.probe (id int)");
    schema::install(&db.database(), &first).await.unwrap();
    let edited = with_migration(
        "V999__probe.sql",
        "create table postrider.probe (id bigint)",
    );
    let error = schema::install(&db.database(), &edited).await.unwrap_err();
    assert!(error.to_string().contains("V999__probe"), "{error}");
}

#[tokio::test]
async fn g31_an_open_emitting_transaction_does_not_block_new_functions() {
    let db = TestDb::new().await;
    let mut emitter = db.connect().await;
    let emitting = emitter.transaction().await.unwrap();
    let exists = "select from pg_proc where proname = 'emit_event'
                  and pronamespace = to_regnamespace('postrider')";
    if !emitting.query(exists, &[]).await.unwrap().is_empty() {
        emitting
            .batch_execute("select postrider.emit_event('invoice.paid', '{}')")
            .await
            .unwrap();
    }
    let bundle = with_sql(
        "more.sql",
        "create function postrider.more() returns int return 1",
    );
    let database = db.database();
    let installing = schema::install(&database, &bundle);
    let done = tokio::time::timeout(Duration::from_secs(5), installing)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        done,
        Migrated::Upgraded {
            from: Release::current()
        }
    );
    emitting.commit().await.unwrap();
}

#[tokio::test]
async fn g31_a_table_change_waits_its_turn_and_knows_for_whom() {
    let db = TestDb::new().await;
    let first = with_migration("V998__probe.sql", "create table postrider.probe (id int)");
    schema::install(&db.database(), &first).await.unwrap();
    let mut holder = db.connect().await;
    let holding = holder.transaction().await.unwrap();
    holding
        .batch_execute("insert into postrider.probe values (1)")
        .await
        .unwrap();

    let mut bundle = first.clone();
    bundle
        .migrations
        .push(("V999__more.sql", "alter table postrider.probe add more int"));
    let database = db.database();
    let installing = tokio::spawn(async move { schema::install(&database, &bundle).await });
    let watcher = db.connect().await;
    let sql = "select from pg_locks where not granted and relation = 'postrider.probe'::regclass";
    let waits = async || !watcher.query(sql, &[]).await.unwrap().is_empty();
    eventually(SOON, async || waits().await.then_some(())).await;
    // Emits queue behind a waiting table change, so it gives way and comes back.
    eventually(SOON, async || (!waits().await).then_some(())).await;
    eventually(SOON, async || waits().await.then_some(())).await;
    let holders = schema::lock_holders(&watcher).await;
    let named = holders
        .iter()
        .any(|h| h.what.contains("test") && h.what.contains("insert into"));
    assert!(named, "{holders:?}");
    holding.commit().await.unwrap();
    let done = installing.await.unwrap().unwrap();
    assert_eq!(
        done,
        Migrated::Upgraded {
            from: Release::current()
        }
    );
}

#[tokio::test]
async fn a_prepared_transaction_is_named_too() {
    let db = TestDb::new().await;
    let client = db.connect().await;
    let gid = format!("{}_gid", db.name());
    client
        .batch_execute(&format!(
            "begin; lock postrider.install in row exclusive mode; prepare transaction '{gid}'"
        ))
        .await
        .unwrap();
    let holders = schema::lock_holders(&client).await;
    assert_eq!(holders.len(), 1, "{holders:?}");
    assert!(
        holders[0].pid.is_none() && holders[0].what.contains(&gid),
        "{holders:?}"
    );
    client
        .batch_execute(&format!("rollback prepared '{gid}'"))
        .await
        .unwrap();
}
