//! The guarantees of every store in virtual time, and the store in a file with crashes, damage and
//! failing disks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod conditions;
mod copies;
mod crash;
#[cfg(feature = "cron")]
mod cron;
mod disk;
mod events;
mod faults;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod hosts;
mod labels;
mod leases;
mod letters;
mod lists;
#[cfg(feature = "log")]
mod log;
mod pause;
mod payloads;
mod power;
mod random_leases;
mod random_runs;
mod resting;
mod run_now;
mod schedule;
#[cfg(unix)]
mod starts;
mod stats;
mod suite;
mod verdicts;
mod workers;
