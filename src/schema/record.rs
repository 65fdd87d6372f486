//! The record of what is installed: one row in `postrider.install`.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Transaction};

use super::bundle::{Bundle, Release};
use super::{SchemaError, history};

/// What the database says is installed.
pub(super) struct Installed {
    pub release: Release,
    pub digest: String,
    pub oldest_worker: Release,
}

const TABLE: &str = "
create table postrider.install (
    only_row bool primary key default true check (only_row),
    release int[] not null,
    digest text not null,
    oldest_worker int[] not null,
    installed_at timestamptz not null,
    installed_by text not null);
comment on table postrider.install is 'Which release of Postrider is installed; one row, kept by postrider migrate.';
comment on column postrider.install.only_row is 'Always true: there is one installation.';
comment on column postrider.install.release is 'The release; compared as numbers, so {1,10,0} is above {1,9,3}.';
comment on column postrider.install.digest is 'SHA-256 over all SQL of the release.';
comment on column postrider.install.oldest_worker is 'Workers below this release must not run on this schema.';
comment on column postrider.install.installed_at is 'When it was installed or last upgraded.';
comment on column postrider.install.installed_by is 'By which role.';
";

/// Reads the record; `None` where nothing is installed.
pub(super) async fn read(client: &impl GenericClient) -> Result<Option<Installed>, SchemaError> {
    // Through the catalogue: to_regclass fails for a role without usage on the schema.
    let exists = "select from pg_catalog.pg_class c
                  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                  where n.nspname = 'postrider' and c.relname = 'install'";
    if client.query_typed(exists, &[]).await?.is_empty() {
        return Ok(None);
    }
    let sql = "select release, digest, oldest_worker from postrider.install";
    let rows = client.query_typed(sql, &[]).await?;
    let row = rows.first().ok_or(SchemaError::Damaged)?;
    Ok(Some(Installed {
        release: Release(row.try_get(0)?),
        digest: row.try_get(1)?,
        oldest_worker: Release(row.try_get(2)?),
    }))
}

/// Makes what refinery and the record need: the schema and two tables.
pub(super) async fn create(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    let exists = "select from pg_catalog.pg_namespace where nspname = 'postrider'";
    // `if not exists` would ask for the right to create even where there is nothing to create.
    if transaction.query_typed(exists, &[]).await?.is_empty() {
        let text = "create schema postrider;
                    comment on schema postrider is 'Postrider: webhooks from Postgres.'";
        transaction.batch_execute(text).await?;
    }
    history::create(transaction).await?;
    transaction.batch_execute(TABLE).await
}

/// Writes the record and wakes everyone who listens.
pub(super) async fn write(
    transaction: &Transaction<'_>,
    bundle: &Bundle,
    digest: &str,
) -> Result<(), tokio_postgres::Error> {
    let sql = "insert into postrider.install as i
                   (release, digest, oldest_worker, installed_at, installed_by)
               values ($1, $2, $3, pg_catalog.clock_timestamp(), current_user)
               on conflict (only_row) do update
               set (release, digest, oldest_worker, installed_at, installed_by) =
                   (excluded.release, excluded.digest, excluded.oldest_worker,
                    excluded.installed_at, excluded.installed_by)";
    let (release, oldest) = (&bundle.release.0, &bundle.oldest_worker.0);
    transaction
        .execute_typed(
            sql,
            &[
                (release, Type::INT4_ARRAY),
                (&digest, Type::TEXT),
                (oldest, Type::INT4_ARRAY),
            ],
        )
        .await?;
    transaction.batch_execute("notify postrider").await
}
