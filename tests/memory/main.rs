//! Tests of the memory that is given back and of the memory that objects cost, counted by the
//! allocator itself, for the calling thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bursts;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "keyed")]
mod layered_bursts;
#[cfg(feature = "future")]
mod queues;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(any(miri, portable))))]
mod resident;
#[cfg(feature = "future")]
mod sleeps;
#[cfg(feature = "future")]
mod small;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Runs one test at a time, because memory that another thread still reads is not freed meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The delay of the timer of this number, anywhere within a minute.
fn delay(number: u32) -> Duration {
    Duration::from_millis(u64::from(number.wrapping_mul(2_654_435_769) % 60_000))
}

/// Returns the number of additional bytes that are allocated after `run`, by this thread.
fn held(run: impl FnOnce()) -> i64 {
    allocation_counter::measure(run).bytes_current
}
