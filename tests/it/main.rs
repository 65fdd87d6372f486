//! Integration tests: one binary, a module per step, every test with a database of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod backoff;
mod clock;
mod connect;
mod embedded;
mod engine_claim;
mod engine_emit;
mod engine_fan_out;
mod engine_fan_out_steps;
mod engine_fetch;
mod engine_held;
mod engine_idempotency;
mod engine_notify;
mod engine_release;
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
mod worker_cli;
mod worker_crash;
mod worker_database;
mod worker_deadline;
mod worker_fleet;
mod worker_isolation;
mod worker_ladder;
mod worker_latency;
mod worker_limits;
mod worker_lost_connections;
mod worker_operator;
mod worker_outcome;
mod worker_pace;
mod worker_replay;
mod worker_send;
mod worker_storage;
mod worker_throttle;
mod worker_transaction;
mod worker_wake;
