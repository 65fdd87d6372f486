//! The clock of the tests.

use std::time::Duration;

use crate::fixtures::postgres::TestDb;

#[tokio::test]
async fn it_moves_for_every_session_of_one_database() {
    let (db, other) = (TestDb::new().await, TestDb::new().await);
    let early = db.connect().await;
    let ahead = async |client: &tokio_postgres::Client| -> f64 {
        let sql = "select extract(epoch from postrider.now() - clock_timestamp())::float8";
        client.query_one(sql, &[]).await.unwrap().get(0)
    };
    other.set_clock_offset(0.0).await;
    db.set_clock_offset(3600.0).await;
    assert!((ahead(&early).await - 3600.0).abs() < 1.0);
    db.advance_clock(Duration::from_secs(60)).await;
    assert!((ahead(&early).await - 3660.0).abs() < 1.0);
    db.set_clock_offset(-5.0).await;
    assert!((ahead(&early).await + 5.0).abs() < 1.0);
    assert!(ahead(&other.connect().await).await.abs() < 1.0);
}
