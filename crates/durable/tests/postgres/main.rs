//! The store in PostgreSQL, with servers that fail, transactions of callers, and a pooler.
//!
//! `store` has the tests that every store passes, in virtual time and on servers that fail.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod beside;
mod client;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "postgres-tls")]
mod encrypted;
mod interleavings;
mod late;
#[cfg(feature = "log")]
mod log;
mod parts;
mod pooler;
mod processes;
mod roles;
mod rows;
mod schema;
mod server;
mod transactions;
mod waits;
