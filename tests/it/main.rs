//! Integration tests: one binary, a module per step, every test with a database of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backoff;
mod clock;
mod connect;
mod embedded;
mod fixtures;
mod input;
mod install;
mod operators;
mod process;
mod receiver;
mod replay;
mod roles;
mod schema_rules;
mod upgrade;
mod views;
