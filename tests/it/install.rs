//! Installing, treated like the product.

use std::time::Duration;

use futures_util::future::join_all;
use postrider::connect::Database;
use postrider::schema::{self, LOCK_KEY, Migrated, SchemaError, State};

use crate::fixtures::bundles::{fingerprint, with_migration, with_sql};
use crate::fixtures::eventually;
use crate::fixtures::postgres::TestDb;

const SOON: Duration = Duration::from_secs(20);

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
