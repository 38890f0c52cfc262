//! Tests of the layers on top of the wheel, the scheduler and keyed timers, and of the uses of
//! other timing wheels.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "cron")]
mod calendar;
#[cfg(feature = "cron")]
mod calendar_sets;
#[cfg(feature = "cron")]
mod closing;
#[cfg(all(feature = "io", feature = "keyed"))]
mod coming_from;
#[cfg(all(feature = "io", feature = "keyed"))]
mod coming_from_others;
#[cfg(feature = "cron")]
mod coming_from_schedulers;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "cron")]
mod dialects;
#[cfg(feature = "cron")]
mod expressions;
mod jitter;
mod joining;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "keyed")]
mod keyed_races;
#[cfg(feature = "keyed")]
mod owned;
#[cfg(feature = "cron")]
mod pausing;
mod permits;
#[cfg(feature = "keyed")]
mod rearming;
#[cfg(feature = "cron")]
mod runs;
mod scheduler;
mod tasks;
#[cfg(feature = "cron")]
mod zones;
