//! Tests of futures: sleeps, timeouts, intervals and delay queues.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clones;
#[path = "../common/mod.rs"]
mod common;
mod default_scopes;
mod delay_queue;
mod drive;
mod ends;
mod fairness;
#[cfg(unix)]
mod forked;
mod grace;
#[cfg(feature = "io")]
mod keep_alive;
mod random_polls;
mod sleep;
mod sleep_wakers;
mod streams;
#[cfg(feature = "testing")]
mod testing;
mod threads;
mod ticks;
mod timeout_interval;
