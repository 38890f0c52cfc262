//! The adapters, with the real crates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod axum;
mod backon;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod export;
mod grpc;
mod held_up;
mod hyper;
mod hyper_pool;
mod quinn;
mod runtimes;
mod streams;
mod streams_under_hyper;
mod threads_of_their_own;
mod tower;
