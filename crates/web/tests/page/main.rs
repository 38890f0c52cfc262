//! The page, as a browser asks for it, without a server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod forms;
mod labels;
mod letters;
mod lists;
mod mounted;
mod overview;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/postgres_server.rs"]
mod postgres_server;
#[allow(dead_code, reason = "these tests use a part")]
#[path = "../common/servers.rs"]
mod servers;
mod stores;
