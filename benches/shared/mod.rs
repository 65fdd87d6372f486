//! What the benches share: a private Postgres, a lean receiver, the program as a worker, load, and the table.

pub mod cluster;
pub mod cpu;
pub mod flow;
pub mod load;
pub mod machine;
pub mod receiver;
pub mod scale;
pub mod sender;
pub mod stats;
pub mod table;
pub mod worker;

/// What a bench returns when it could not measure.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
