//! The program `timers`, run on a file, on Redis and on PostgreSQL.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/certificates.rs"]
mod certificates;
mod file;
mod postgres;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/postgres_server.rs"]
mod postgres_server;
mod redis;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/sentinels.rs"]
mod sentinels;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/servers.rs"]
mod servers;
mod tool;
