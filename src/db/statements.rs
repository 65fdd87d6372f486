//! How statements are sent: each a transaction of its own, all of a call in one round trip.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use deadpool_postgres::{Object, Pool};
use tokio_postgres::{
    Client, Row,
    types::{ToSql, Type},
};

use super::DbError;

/// Longest wait for the answer to a statement. A connection that exceeds it is dropped.
const LIMIT: Duration = Duration::from_secs(20);

pub(super) type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

/// A statement in a transaction that says its isolation.
pub(super) async fn explicit(
    client: &Client,
    sql: &str,
    params: Params<'_>,
) -> Result<Vec<Row>, DbError> {
    // Biased: polled, and so sent, in this order.
    let (begun, rows, committed) = tokio::join!(
        biased;
        client.batch_execute("begin isolation level read committed"),
        client.query_typed(sql, params),
        client.batch_execute("commit"),
    );
    // After a failed statement the commit is a rollback and succeeds: the statement's own error comes first.
    let rows = rows?;
    begun?;
    committed?;
    Ok(rows)
}

/// Sends over a pool.
pub(super) struct Statements {
    pool: Pool,
    /// The database's default isolation is refused: each transaction says its own.
    explicit: AtomicBool,
}

impl Statements {
    pub(super) fn new(pool: Pool) -> Self {
        Self {
            pool,
            explicit: AtomicBool::new(false),
        }
    }

    pub(super) async fn one(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, DbError> {
        let connection = self.connection().await?;
        let result = self.send(&connection, sql, params).await;
        keep(connection, result.as_ref().err());
        result
    }

    /// The second is carried out after the first has committed, or failed.
    pub(super) async fn two(
        &self,
        first: (&str, Params<'_>),
        second: (&str, Params<'_>),
    ) -> Result<[Result<Vec<Row>, DbError>; 2], DbError> {
        let connection = self.connection().await?;
        let (one, two) = tokio::join!(
            biased;
            self.send(&connection, first.0, first.1),
            self.send(&connection, second.0, second.1),
        );
        keep(connection, one.as_ref().err().or(two.as_ref().err()));
        Ok([one, two])
    }

    async fn connection(&self) -> Result<Object, DbError> {
        tokio::time::timeout(LIMIT, self.pool.get())
            .await
            .map_err(|_| DbError::Connection("no connection became free".into()))?
            .map_err(|e| DbError::Connection(e.to_string()))
    }

    /// Left to itself a statement is a transaction, and costs both sides a third of the messages that `begin` and
    /// `commit` around it would; rows are complete after its commit only.
    async fn send(
        &self,
        client: &Client,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, DbError> {
        let sent = async {
            if !self.explicit.load(Ordering::Relaxed) {
                let result = client.query_typed(sql, params).await;
                match result.map_err(DbError::from) {
                    Err(DbError::Isolation(_)) => self.explicit.store(true, Ordering::Relaxed),
                    result => return result,
                }
            }
            explicit(client, sql, params).await
        };
        tokio::time::timeout(LIMIT, sent)
            .await
            .unwrap_or_else(|_| Err(DbError::Connection(format!("no answer within {LIMIT:?}"))))
    }
}

/// Gives a connection back, or drops it after an error that may be the connection's.
fn keep(connection: Object, error: Option<&DbError>) {
    if matches!(error, Some(DbError::Connection(_))) {
        drop(Object::take(connection));
    }
}
