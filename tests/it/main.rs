//! Integration tests: one binary, a module per step, every test with a database of its own.

mod embedded;
mod fixtures;
