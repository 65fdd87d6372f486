//! Postrider delivers webhooks from Postgres.
//!
//! The database decides; the worker only paces, signs, sends and reports. Everything here is named
//! after a step of the path of an event:
//!
//! ```text
//! emit_event ─► fan_out ─► claim ─► pace ─► sign ─► send ─► report ─► settle ─► ladder
//!    SQL          SQL       SQL      Rust    Rust    Rust     SQL      SQL      trigger
//! ```
//!
//! Read in this order: [`schema`] installs the SQL side, [`db`] is every statement the worker sends,
//! [`worker`] is the loop, [`delivery`] is one request.

pub mod admin;
pub mod config;
pub mod connect;
pub mod db;
pub mod delivery;
pub mod demo;
pub mod doctor;
pub mod embedded;
pub mod error;
pub mod inspect;
pub mod schema;
pub mod status;
pub mod worker;
