//! Why the schema could not be installed or read.

use refinery_core::error::Kind;
use tokio_postgres::error::{ErrorPosition, SqlState};

use super::blocker::Blocker;
use crate::connect::{ConnectError, explain};

/// Why the schema could not be installed or read. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server is too old.
    #[error("PostgreSQL {0} is too old: Postrider needs 14 or newer")]
    ServerTooOld(String),
    /// The database does not speak UTF-8.
    #[error(
        "database {database} has encoding {encoding}: Postrider sends the bytes that were emitted and needs UTF8; create one with: create database … encoding 'UTF8' template template0"
    )]
    Encoding {
        /// The database.
        database: String,
        /// Its encoding.
        encoding: String,
    },
    /// The role may not do this.
    #[error("{reason}; {advice}")]
    Privilege {
        /// What the server said.
        reason: String,
        /// Which right is missing, and who can give it.
        advice: String,
    },
    /// The server takes no writes.
    #[error(
        "this server is read-only, perhaps a standby: connect to the primary (target_session_attrs=read-write finds it)"
    )]
    ReadOnly,
    /// Others held the locks that were needed, on every try.
    #[error(
        "{reason}, in each of {attempts} tries; {}",
        Blocker::describe(blockers)
    )]
    Busy {
        /// What the server said last.
        reason: String,
        /// How often it was tried.
        attempts: u32,
        /// Who was in the way after the last try.
        blockers: Vec<Blocker>,
    },
    /// A file of `sql/` failed.
    #[error("sql/{name}{place}: {reason}")]
    File {
        /// The file.
        name: String,
        /// `:line`, where the server told.
        place: String,
        /// What the server said.
        reason: String,
        /// The error as the driver gave it.
        #[source]
        source: Box<tokio_postgres::Error>,
    },
    /// A migration failed, or the applied ones do not match this binary.
    #[error("{reason}")]
    Migration {
        /// What went wrong, with the migration's name.
        reason: String,
        /// The error as refinery gave it.
        #[source]
        source: Box<refinery_core::Error>,
    },
    /// Any other answer of the server.
    #[error("{}", explain(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// The recorded installation cannot be read.
    #[error(
        "postrider.install has no row: the installation is damaged; restore the row, or drop the schema"
    )]
    Damaged,
}

impl SchemaError {
    pub(super) fn file(name: &str, text: &str, source: tokio_postgres::Error) -> Self {
        let position = source.as_db_error().and_then(|e| e.position());
        let place = match position {
            Some(ErrorPosition::Original(at)) => {
                let before = text.chars().take((*at as usize).saturating_sub(1));
                format!(":{}", before.filter(|c| *c == '\n').count() + 1)
            }
            _ => String::new(),
        };
        let reason = explain(&source);
        Self::File {
            name: name.to_owned(),
            place,
            reason,
            source: Box::new(source),
        }
    }

    pub(super) fn migration(source: refinery_core::Error) -> Self {
        let reason = match (source.kind(), postgres_cause(&source)) {
            (Kind::Connection(what, _), Some(postgres)) => format!("{what}: {}", explain(postgres)),
            _ => source.to_string(),
        };
        Self::Migration {
            reason,
            source: Box::new(source),
        }
    }

    /// The server's error, however deep.
    fn code(&self) -> Option<SqlState> {
        postgres_cause(self)
            .and_then(tokio_postgres::Error::code)
            .cloned()
    }

    /// How often to try before this error is final.
    ///
    /// Roles are shared by all databases of a server and our lock is not, so two databases that
    /// install at once can meet there: a duplicate, or "tuple concurrently updated" (`XX000`).
    pub(super) fn tries(&self) -> u32 {
        let Some(code) = self.code() else { return 1 };
        let meeting = [
            SqlState::INTERNAL_ERROR,
            SqlState::DUPLICATE_OBJECT,
            SqlState::UNIQUE_VIOLATION,
        ];
        match code {
            _ if self.is_lock() => 20,
            code if meeting.contains(&code) => 4,
            _ => 1,
        }
    }

    /// Whether somebody else's lock was in the way.
    pub(super) fn is_lock(&self) -> bool {
        let locks = [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        self.code().is_some_and(|code| locks.contains(&code))
    }

    /// The same error, in the words of what a person can do about it.
    pub(super) fn advised(self, user: &str, database: &str) -> Self {
        let code = self.code();
        if code == Some(SqlState::READ_ONLY_SQL_TRANSACTION) {
            return Self::ReadOnly;
        }
        if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
            return Self::Privilege {
                reason: self.to_string(),
                advice: format!(
                    "install as the role that owns the schema postrider, or the first time let an administrator run: grant create on database \"{database}\" to \"{user}\""
                ),
            };
        }
        self
    }
}

fn postgres_cause<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a tokio_postgres::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        let found = error.downcast_ref().or_else(|| {
            // A boxed source hides its type from a plain downcast.
            error
                .downcast_ref::<Box<tokio_postgres::Error>>()
                .map(AsRef::as_ref)
        });
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}
