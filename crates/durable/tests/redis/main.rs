//! The store in Redis, with servers that fail, clusters that change, and owners that come and go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod changes;
mod cluster;
#[path = "../common/mod.rs"]
mod common;
mod damage;
#[cfg(feature = "log")]
mod log;
mod nested;
mod notices;
mod owners;
mod payloads;
mod renewals;
mod sentinel;
mod server;
mod settings;
#[cfg(feature = "redis-tls")]
mod tls;
