//! Integration tests: one binary, a module per step, every test with a database of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clock;
mod connect;
mod embedded;
mod fixtures;
mod install;
mod process;
mod receiver;
mod schema_rules;
mod upgrade;
