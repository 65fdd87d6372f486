//! Every statement the worker sends, and nothing else.
//!
//! The worker's whole SQL vocabulary is a handful of function calls. Each is a statement and a transaction of its
//! own, in one round trip. The functions refuse any isolation but read committed; where that is not the database's
//! default, `begin` says so and is pipelined with the call and `commit`. Statements are unnamed and typed, since behind
//! a transaction-pooling proxy no prepared statement outlives its transaction.

mod calls;
mod from_rows;
mod held;
mod rows;
mod statements;

pub use calls::{Db, heartbeat, register};
pub use rows::{
    Attempt, Beat, Claim, Claimed, Delivery, FanOut, Fetched, Settings, Verdict, WantedRefill,
};

use tokio_postgres::error::SqlState;

/// Why a call failed, by what its caller does about it.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// No connection, or it broke: whether the call took effect is not known. Try again.
    #[error("database connection: {0}")]
    Connection(String),
    /// The database asked for a repetition (deadlock, serialization, lock time-out, shutdown …).
    #[error("the database could not do it now: {0}")]
    Again(String),
    /// The caller's lease is gone (SQLSTATE PR021). Register anew.
    #[error("the lease is gone: {0}")]
    LeaseGone(String),
    /// The transaction is not read committed (SQLSTATE PR020). Begin one that is.
    #[error("the isolation level: {0}")]
    Isolation(String),
    /// The database refuses these arguments, and will again.
    #[error("refused by the database: {0}")]
    Refused(String),
}

impl From<tokio_postgres::Error> for DbError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            return if error.is_closed() || std::error::Error::source(&error).is_some() {
                Self::Connection(crate::connect::explain(&error))
            } else {
                Self::Refused(error.to_string())
            };
        };
        let text = format!("{} (SQLSTATE {})", db.message(), db.code().code());
        let class = db.code().code().get(..2).unwrap_or("");
        match (db.code(), class) {
            (code, _) if code.code() == "PR020" => Self::Isolation(text),
            (code, _) if code.code() == "PR021" => Self::LeaseGone(text),
            (
                &SqlState::T_R_DEADLOCK_DETECTED
                | &SqlState::T_R_SERIALIZATION_FAILURE
                | &SqlState::LOCK_NOT_AVAILABLE
                | &SqlState::QUERY_CANCELED
                | &SqlState::READ_ONLY_SQL_TRANSACTION,
                _,
            )
            | (_, "53" | "57" | "58" | "08" | "25") => Self::Again(text),
            _ => Self::Refused(text),
        }
    }
}

impl DbError {
    /// Whether a smaller batch or other arguments could fare better.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}
