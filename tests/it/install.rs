//! Installing, treated like the product.

use postrider::connect::Database;
use postrider::schema::{self, LOCK_KEY, SchemaError, State};

use crate::fixtures::bundles::{fingerprint, with_migration, with_sql};
use crate::fixtures::postgres::TestDb;

#[test]
fn the_lock_key_never_changes() {
    assert_eq!(LOCK_KEY, 8_101_821_198_635_721_829);
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
