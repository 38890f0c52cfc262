//! What the benchmarks share: wheels that hold many timers.

#![forbid(unsafe_code)]

use std::time::Duration;
use tourbillon::{Builder, Sweeper, TimerId, Wheel};

/// Delays over which armed timers are spread: 1 to 61 s.
pub const SHORTEST: Duration = Duration::from_secs(1);

/// A wheel of one shard with `armed` timers, their ids, and its sweeper.
///
/// # Panics
///
/// If the wheel refuses a timer.
#[must_use]
pub fn wheel_of(armed: u32) -> (Wheel<u64>, Sweeper<u64>, Vec<TimerId>) {
    let (wheel, sweeper) = Builder::new().shards(1).build().expect("the defaults are in range");
    let mut pinned = wheel.pin();
    let ids = (0..armed)
        .map(|n| {
            if n % 64 == 0 {
                pinned.repin();
            }
            pinned.insert(u64::from(n), delay(n)).expect("the wheel is open")
        })
        .collect();
    drop(pinned);
    (wheel, sweeper, ids)
}

/// The `n`th delay: 1 to 61 s, spread evenly.
#[must_use]
pub fn delay(n: u32) -> Duration {
    SHORTEST + Duration::from_micros(u64::from(n.wrapping_mul(2_654_435_769) % 60_000_000))
}
