//! The cache in virtual time and under threads. Each file tests one part of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod coming_from;
mod common;
mod conditional;
mod entries;
mod lifetimes;
mod loads;
mod refresh;
mod rig;
mod shared;
mod tasks;
mod weights;
