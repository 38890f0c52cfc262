//! Tests of the wheel itself, with its guarantees by name, its edges, random operations, and real
//! threads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod guarantees;
mod interface;
mod layering;
mod linearizability;
mod long_time;
mod properties;
mod series;
mod shards;
mod stress;
mod transitions;
