//! Lets refinery run inside a transaction that is already open.
//!
//! Its own drivers open one per call; then tables and functions could not switch in one commit.

use refinery_core::traits::r#async::{AsyncMigrate, AsyncQuery, AsyncTransaction};
use refinery_core::{Migration, Runner};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_postgres::{Row, Transaction};

/// refinery's table of applied migrations.
const TABLE: &str = "postrider.refinery_schema_history";

/// The same columns as refinery's own statement, which then finds it there, and comments.
const CREATE: &str = "
create table postrider.refinery_schema_history (
    version int4 primary key, name varchar(255), applied_on varchar(255), checksum varchar(255));
comment on table postrider.refinery_schema_history is 'The migrations that were applied; kept by postrider migrate.';
comment on column postrider.refinery_schema_history.version is 'Number of the migration.';
comment on column postrider.refinery_schema_history.name is 'Name of the migration.';
comment on column postrider.refinery_schema_history.applied_on is 'When it was applied, RFC 3339.';
comment on column postrider.refinery_schema_history.checksum is 'Checksum of number, name and text; an edited migration is refused.';
";

#[derive(Debug, thiserror::Error)]
pub(super) enum HistoryError {
    // Not transparent: that would hide the server's error from a look through the sources.
    #[error("{TABLE}")]
    Postgres(#[from] tokio_postgres::Error),
    #[error("a row of {TABLE} cannot be read: {0}")]
    Unreadable(String),
}

struct Open<'a>(&'a Transaction<'a>);

impl AsyncTransaction for Open<'_> {
    type Error = HistoryError;

    async fn execute<'a, T: Iterator<Item = &'a str> + Send + 'a>(
        &'a mut self,
        queries: T,
    ) -> Result<usize, HistoryError> {
        let mut count = 0;
        for query in queries {
            self.0.batch_execute(query).await?;
            count += 1;
        }
        Ok(count)
    }
}

impl AsyncQuery<Vec<Migration>> for Open<'_> {
    async fn query<'a>(&'a mut self, query: &'a str) -> Result<Vec<Migration>, HistoryError> {
        self.0
            .query_typed(query, &[])
            .await?
            .iter()
            .map(applied)
            .collect()
    }
}

impl AsyncMigrate for Open<'_> {}

fn applied(row: &Row) -> Result<Migration, HistoryError> {
    let unreadable = |e: &dyn std::fmt::Display| HistoryError::Unreadable(e.to_string());
    let applied_on: String = row.try_get(2)?;
    let applied_on = OffsetDateTime::parse(&applied_on, &Rfc3339).map_err(|e| unreadable(&e))?;
    let checksum: String = row.try_get(3)?;
    let checksum = checksum.parse().map_err(|e| unreadable(&e))?;
    Ok(Migration::applied(
        row.try_get(0)?,
        row.try_get(1)?,
        applied_on,
        checksum,
    ))
}

/// Applies the migrations that are missing, within `transaction`.
pub(super) async fn run(
    transaction: &Transaction<'_>,
    migrations: &[(&str, &str)],
) -> Result<(), refinery_core::Error> {
    let parsed: Result<Vec<Migration>, _> = migrations
        .iter()
        .map(|(name, text)| Migration::unapplied(name, text))
        .collect();
    let mut runner = Runner::new(&parsed?);
    runner.set_migration_table_name(TABLE);
    // Not grouped: one statement batch per migration, so that an error names it.
    runner.run_async(&mut Open(transaction)).await.map(drop)
}

/// Makes the history table of a fresh schema.
pub(super) async fn create(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    transaction.batch_execute(CREATE).await
}
