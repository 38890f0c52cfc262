//! What stands on the wheel: the scheduler, keyed timers, the cache, and what people did with other
//! wheels.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/entries.rs"]
mod cache;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/lifetimes.rs"]
mod cache_lifetimes;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/loads.rs"]
mod cache_loads;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/refresh.rs"]
mod cache_refresh;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/shared.rs"]
mod cache_shared;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/tasks.rs"]
mod cache_tasks;
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/weights.rs"]
mod cache_weights;
#[cfg(feature = "cron")]
mod calendar;
#[cfg(feature = "cron")]
mod calendar_sets;
#[cfg(feature = "cron")]
mod closing;
#[cfg(all(feature = "cache", feature = "io", feature = "keyed"))]
mod coming_from;
#[cfg(all(feature = "cache", feature = "io", feature = "keyed"))]
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
#[cfg(feature = "cache")]
#[path = "../../cache/tests/cache/rig.rs"]
mod rig;
#[cfg(feature = "cron")]
mod runs;
mod scheduler;
mod tasks;
