//! Tests that a wheel gives its memory back to the system, even if the allocator keeps memory of
//! its own.

use crate::common::{Bench, Shape};
use crate::{alone, delay};
use std::time::Duration;
use tourbillon::__internals::Geometry;

/// Returns the system memory that the process has, in KiB.
fn resident() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The entries of a burst whose timers are cancelled go back to the system, including those whose
/// references the sweeper still visits afterwards.
#[test]
fn the_entries_of_a_burst_go_back_to_the_system() {
    const TIMERS: u32 = 400_000;
    let _alone = alone();
    let tick = Duration::from_millis(1);
    let shape = Shape { tick, shards: 1, geometry: Geometry::default(), first_tick: 0 };
    let mut bench = Bench::<[u64; 6]>::new(shape);
    let mut ids = Vec::with_capacity(TIMERS as usize);
    ids.extend((0..TIMERS).map(|n| bench.wheel.insert([n.into(); 6], delay(n)).unwrap()));
    let most = resident();
    for id in ids {
        assert!(bench.wheel.cancel(id).is_some());
    }
    while bench.sweeper.next_deadline().is_some() {
        assert!(bench.advance(Duration::from_millis(7)).is_empty());
    }
    // 64 bytes an entry.
    let entries = i64::from(TIMERS) * 64 / 1024;
    let left = resident();
    assert!(left < most - entries * 9 / 10, "{left} of {most}, {entries} of them entries");
}
