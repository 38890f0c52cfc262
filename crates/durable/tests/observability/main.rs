//! The facades `metrics` and `tracing`, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod figures;
mod spans;
