//! Installing and upgrading, treated like the product.

use std::time::Duration;

use futures_util::future::join_all;
use postrider::connect::Database;
use postrider::schema::{self, Bundle, LOCK_KEY, Migrated, Release, SchemaError, State};
use tokio_postgres::Client;

use crate::fixtures::eventually;
use crate::fixtures::postgres::TestDb;

const SOON: Duration = Duration::from_secs(20);

/// This build's bundle with one more restatable file.
fn with_sql(name: &'static str, text: &'static str) -> Bundle {
    let mut bundle = Bundle::current();
    bundle.sql.push((name, text));
    bundle
}

/// This build's bundle with one more migration.
fn with_migration(name: &'static str, text: &'static str) -> Bundle {
    let mut bundle = Bundle::current();
    bundle.migrations.push((name, text));
    bundle
}

/// Everything of the schema with the transaction that wrote it last.
async fn fingerprint(client: &Client) -> String {
    let sql = "select coalesce(string_agg(line, E'\\n' order by line), '') from (
            select format('%s %s', c.relname, c.xmin) from pg_class c
            where c.relnamespace = to_regnamespace('postrider')
            union all
            select format('%s %s', p.oid::regprocedure, p.xmin) from pg_proc p
            where p.pronamespace = to_regnamespace('postrider')) as found (line)";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[test]
fn the_lock_key_never_changes() {
    assert_eq!(LOCK_KEY, 8_101_821_198_635_721_829);
}

#[tokio::test]
async fn ten_installers_at_once_make_one_schema() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    assert_eq!(schema::check(&client).await.unwrap(), State::Missing);
    let database = db.database();
    let done = join_all((0..10).map(|_| schema::migrate(&database))).await;
    let done: Vec<Migrated> = done.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        done.iter().filter(|m| **m == Migrated::Installed).count(),
        1,
        "{done:?}"
    );
    assert_eq!(
        done.iter().filter(|m| **m == Migrated::Unchanged).count(),
        9,
        "{done:?}"
    );
    assert_eq!(schema::check(&client).await.unwrap(), State::Current);
    let before = fingerprint(&client).await;
    assert_eq!(
        schema::migrate(&database).await.unwrap(),
        Migrated::Unchanged
    );
    assert_eq!(fingerprint(&client).await, before);
}

#[tokio::test]
async fn several_databases_of_one_server_install_at_once() {
    let dbs = join_all((0..4).map(|_| TestDb::empty())).await;
    let databases: Vec<Database> = dbs.iter().map(TestDb::database).collect();
    for done in join_all(databases.iter().map(schema::migrate)).await {
        assert_eq!(done.unwrap(), Migrated::Installed);
    }
}

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
async fn an_installer_killed_half_way_leaves_nothing() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    let bundle = with_sql("slow.sql", "select pg_catalog.pg_sleep(60)");
    let database = db.database();
    let installing = tokio::spawn(async move { schema::install(&database, &bundle).await });
    eventually(SOON, async || {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity
                   where datname = current_database() and wait_event = 'PgSleep'";
        client.query_opt(sql, &[]).await.unwrap()
    })
    .await;
    assert!(installing.await.unwrap().is_err());
    let sql = "select to_regnamespace('postrider') is null";
    assert!(client.query_one(sql, &[]).await.unwrap().get::<_, bool>(0));
    assert_eq!(
        schema::migrate(&db.database()).await.unwrap(),
        Migrated::Installed
    );
}

#[tokio::test]
async fn a_failure_names_the_file_and_leaves_nothing() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    let bundle = with_sql("broken.sql", "select 1;\n\nselect nonsense from nowhere;\n");
    let error = schema::install(&db.database(), &bundle)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("sql/broken.sql:3: "), "{error}");
    let bundle = with_migration(
        "V999__broken.sql",
        "create table postrider.x (y no_such_type)",
    );
    let error = schema::install(&db.database(), &bundle)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("V999__broken") && error.contains("no_such_type"),
        "{error}"
    );
    assert_eq!(fingerprint(&client).await, "");
    assert_eq!(schema::check(&client).await.unwrap(), State::Missing);
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
async fn an_open_emitting_transaction_does_not_block_new_functions() {
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
async fn a_table_change_waits_its_turn_and_knows_for_whom() {
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
async fn what_cannot_work_is_refused_with_the_reason() {
    let db = TestDb::empty().await;
    let client = db.connect().await;
    let other = format!("{}_ascii", db.name());
    let sql = format!(
        "create database {other} template template0 encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C'"
    );
    client.batch_execute(&sql).await.unwrap();
    let ascii = Database::new(Some(&db.url().replace(db.name(), &other))).unwrap();
    let error = schema::migrate(&ascii).await.unwrap_err();
    assert!(matches!(error, SchemaError::Encoding { .. }), "{error}");
    client
        .batch_execute(&format!("drop database {other} with (force)"))
        .await
        .unwrap();

    let role = format!("{}_role", db.name());
    client
        .batch_execute(&format!("create role {role} login password '{role}'"))
        .await
        .unwrap();
    let poor = Database::new(Some(&db.url_as(&role))).unwrap();
    let error = schema::migrate(&poor).await.unwrap_err();
    assert!(matches!(error, SchemaError::Privilege { .. }), "{error}");
    assert!(
        error.to_string().contains("grant create on database"),
        "{error}"
    );
    client
        .batch_execute(&format!("drop role {role}"))
        .await
        .unwrap();
}
