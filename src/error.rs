//! What ends a command, and with which exit status.

use crate::{connect::ConnectError, demo, inspect::InspectError, schema::SchemaError, worker};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Installing, upgrading or checking the schema failed.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The database has no schema, or that of an older release.
    #[error(
        "the database has {found}, and this is release {own}: run `postrider migrate` (or start with --migrate)"
    )]
    SchemaTooOld {
        /// What it has.
        found: String,
        /// The release of this program.
        own: String,
    },
    /// The database has the schema of a release that this one cannot work with.
    #[error(
        "the database has the schema of release {found}, which release {own} cannot work with: install the newer program"
    )]
    SchemaTooNew {
        /// What it has.
        found: String,
        /// The release of this program.
        own: String,
    },
    /// The worker could not go on.
    #[error(transparent)]
    Worker(#[from] worker::Error),
    /// The demo could not be shown.
    #[error(transparent)]
    Demo(#[from] demo::Error),
    /// Looking at the installation failed.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// The admin address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another --admin-listen")]
    AdminListen {
        /// The address.
        address: std::net::SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// Signals or other services of the system failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Error {
    /// Whether the same may work later without anybody's doing ([`ConnectError::is_passing`]).
    #[must_use]
    pub fn is_passing(&self) -> bool {
        if let Self::Connect(error) | Self::Schema(SchemaError::Connect(error)) = self {
            return error.is_passing();
        }
        std::iter::successors(std::error::Error::source(self), |e| e.source())
            .filter_map(|e| e.downcast_ref())
            .any(crate::connect::is_passing)
    }

    /// The exit status it leads to.
    #[must_use]
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::SchemaTooOld { .. } | Self::SchemaTooNew { .. } => 3,
            _ => 1,
        }
    }
}
