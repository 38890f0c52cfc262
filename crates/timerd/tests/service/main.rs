//! The service, in this process and as a program.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alerts;
mod api;
mod audit;
mod bench;
mod browser;
mod calls;
#[path = "../common/certificates.rs"]
mod certificates;
mod coming_from;
mod connections;
mod faults;
mod guard;
mod history;
mod limits;
mod log;
mod metrics;
mod page;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/postgres_server.rs"]
mod postgres_server;
mod program;
mod receiver;
mod receivers;
mod reuse;
mod roles;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/sentinels.rs"]
mod sentinels;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/servers.rs"]
mod servers;
#[cfg(feature = "otlp")]
mod spans;
