//! Installs and upgrades the SQL side, in one transaction.
//!
//! Lock, then refinery's missing migrations, then all restatable SQL if anything changed, then the
//! record of the release. Tables and functions switch in the same commit, so nobody ever sees a
//! mixture, and a failure leaves everything as it was.

mod blocker;
mod bundle;
mod error;
mod history;
pub mod manifest;
mod record;

use std::time::Duration;

use rand::Rng;
use tokio_postgres::{Client, IsolationLevel};

use crate::connect::Database;

pub use blocker::Blocker;
pub use bundle::{Bundle, Release};
pub use error::SchemaError;

/// The advisory lock of an installation: "postride" in ASCII. Binaries that are already deployed use
/// it, so changing it would let two installers run at once.
pub const LOCK_KEY: i64 = 0x706f_7374_7269_6465;

/// What an installation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Migrated {
    /// There was no schema; now there is.
    Installed,
    /// The schema was brought from this release to ours.
    Upgraded {
        /// The release that was there; ours, when only a development build's SQL changed.
        from: Release,
    },
    /// The schema was ours already.
    Unchanged,
    /// The schema is of a newer release, and was left alone.
    Newer {
        /// That release.
        found: Release,
    },
}

/// How the installed schema compares with this binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// There is none.
    Missing,
    /// It is of an older release; this worker needs `postrider migrate` first.
    Older {
        /// That release.
        found: Release,
    },
    /// It is ours.
    Current,
    /// It is of a newer release.
    Newer {
        /// That release.
        found: Release,
        /// Whether a worker of our release may still run on it.
        supported: bool,
    },
}

/// Installs or upgrades the schema to what this binary carries.
pub async fn migrate(database: &Database) -> Result<Migrated, SchemaError> {
    install(database, &Bundle::current()).await
}

/// Installs or upgrades the schema to `bundle`.
pub async fn install(database: &Database, bundle: &Bundle) -> Result<Migrated, SchemaError> {
    let mut client = database.named("postrider migrate").connect().await?;
    let (user, name) = refuse_unsuitable(&client).await?;
    let mut attempts = 1;
    loop {
        let error = match attempt(&mut client, bundle).await {
            Ok(done) => return Ok(done),
            Err(error) => error.advised(&user, &name),
        };
        if client.is_closed() || !error.is_lock() && attempts >= error.tries() {
            return Err(error);
        }
        let blockers = blocker::find(&client).await;
        if attempts >= error.tries() {
            return Err(SchemaError::Busy {
                reason: error.to_string(),
                attempts,
                blockers,
            });
        }
        tracing::info!(%error, attempts, holders = Blocker::describe(&blockers), "trying again");
        let longest = 100_u64 << attempts.min(4);
        let wait = rand::rng().random_range(20..longest);
        tokio::time::sleep(Duration::from_millis(wait)).await;
        attempts += 1;
    }
}

/// The sessions that hold locks on Postrider's tables, oldest transaction first; at most three.
pub async fn lock_holders(client: &Client) -> Vec<Blocker> {
    blocker::find(client).await
}

/// Compares the installed schema with this binary; writes nothing.
pub async fn check(client: &Client) -> Result<State, SchemaError> {
    let found = match record::read(client).await {
        Ok(found) => found,
        Err(SchemaError::Postgres(e))
            if e.code() == Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE) =>
        {
            return Err(SchemaError::Privilege {
                reason: crate::connect::explain(&e),
                advice: "let an administrator run: grant postrider_worker to the worker's role"
                    .to_owned(),
            });
        }
        Err(error) => return Err(error),
    };
    let mine = Bundle::current();
    Ok(match found {
        None => State::Missing,
        Some(found) if found.release < mine.release => State::Older {
            found: found.release,
        },
        Some(found) if found.release > mine.release => State::Newer {
            supported: found.oldest_worker <= mine.release,
            found: found.release,
        },
        Some(found) => {
            if found.digest != mine.digest() {
                tracing::warn!(
                    "the schema has this release's number but other SQL: run postrider migrate"
                );
            }
            State::Current
        }
    })
}

async fn refuse_unsuitable(client: &Client) -> Result<(String, String), SchemaError> {
    let sql = "select current_setting('server_version_num')::int4, current_setting('server_version'),
                      current_setting('server_encoding'), current_user::text, current_database()::text";
    let row = client.query_typed_one(sql, &[]).await?;
    if row.try_get::<_, i32>(0)? < 140_000 {
        return Err(SchemaError::ServerTooOld(row.try_get(1)?));
    }
    let (encoding, user, database): (String, _, _) =
        (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
    if encoding != "UTF8" {
        return Err(SchemaError::Encoding { database, encoding });
    }
    Ok((user, database))
}

async fn attempt(client: &mut Client, bundle: &Bundle) -> Result<Migrated, SchemaError> {
    let builder = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted);
    let transaction = builder.start().await?;
    // Another installer may take its time; only the waits of our own changes are kept short, since
    // every emit queues behind them.
    transaction
        .batch_execute(&format!(
            "set local statement_timeout = 0; set local lock_timeout = '60s';
             set local client_min_messages = warning; set local search_path = pg_catalog;
             select pg_catalog.pg_advisory_xact_lock({LOCK_KEY});
             set local lock_timeout = '200ms'; set local statement_timeout = '10min'"
        ))
        .await?;
    let found = record::read(&transaction).await?;
    let digest = bundle.digest();
    let done = match &found {
        Some(found) if found.release > bundle.release => Some(Migrated::Newer {
            found: found.release.clone(),
        }),
        Some(found) if found.release == bundle.release && found.digest == digest => {
            Some(Migrated::Unchanged)
        }
        _ => None,
    };
    if let Some(done) = done {
        transaction.rollback().await?;
        return Ok(done);
    }
    if found.is_none() {
        record::create(&transaction).await?;
    }
    history::run(&transaction, &bundle.migrations)
        .await
        .map_err(SchemaError::migration)?;
    for (name, text) in &bundle.sql {
        transaction
            .batch_execute(text)
            .await
            .map_err(|e| SchemaError::file(name, text, e))?;
    }
    record::write(&transaction, bundle, &digest).await?;
    transaction.commit().await?;
    Ok(match found {
        None => Migrated::Installed,
        Some(found) => {
            if found.release == bundle.release {
                tracing::warn!(release = %bundle.release, "same release, other SQL: applied again");
            }
            Migrated::Upgraded {
                from: found.release,
            }
        }
    })
}
