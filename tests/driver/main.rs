//! Tests of the driver, with its handlers and batches, its clock in real time, and its events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod default_executor;
#[cfg(unix)]
mod fork;
mod handlers;
mod real_time;
#[cfg(feature = "tracing")]
mod trace;
