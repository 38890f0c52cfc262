//! What stands on the wheel: the scheduler, keyed timers, the cache, and what people did with other
//! wheels.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "cache")]
mod cache;
#[cfg(feature = "cache")]
mod cache_loads;
#[cfg(feature = "cron")]
mod calendar;
#[cfg(all(feature = "cache", feature = "future", feature = "keyed"))]
mod coming_from;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "keyed")]
mod keyed;
#[cfg(feature = "keyed")]
mod keyed_races;
#[cfg(feature = "keyed")]
mod owned;
mod scheduler;
