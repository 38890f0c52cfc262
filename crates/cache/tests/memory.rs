//! The cache gives back the memory of a burst, as the allocator counts it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use allocation_counter::measure;
use std::time::Duration;
use tourbillon::{Builder, ManualClock, Sweeper};
use tourbillon_cache::{Cache, CacheTimer};

const BURST: u64 = 200_000;
const LIFE: Duration = Duration::from_secs(10);

/// The name of an end of a burst, and the function that ends it.
type End = (&'static str, fn(&mut Cached));

/// Returns the bytes that are left of a burst after `end`, and the bytes that it took.
fn burst(cached: &mut Cached, end: fn(&mut Cached)) -> (i64, i64) {
    let most = measure(|| cached.fill()).bytes_current;
    let end = || {
        end(cached);
        cached.sweep();
    };
    (most + measure(end).bytes_current, most)
}

struct Cached {
    cache: Cache<u64, u64>,
    sweeper: Sweeper<CacheTimer<u64>>,
    clock: ManualClock,
}

impl Cached {
    fn fill(&mut self) {
        (0..BURST).for_each(|key| self.cache.insert(key, key).unwrap());
    }

    fn sweep(&mut self) {
        while self.sweeper.next_deadline().is_some() {
            let _ = self.sweeper.sweep(|timer| self.cache.fire(timer));
        }
        assert!(self.cache.is_empty());
    }
}

#[test]
fn a_burst_of_entries_gives_its_memory_back() {
    let clock = ManualClock::new();
    let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    let mut cached = Cached { cache: Cache::builder(LIFE).build(wheel).unwrap(), sweeper, clock };
    let ends: [End; 3] = [
        ("removed", |cached| {
            (0..BURST).for_each(|key| assert_eq!(cached.cache.remove(&key), Some(key)));
        }),
        ("expired", |cached| cached.clock.advance(LIFE * 2)),
        ("cleared", |cached| cached.cache.clear()),
    ];
    for (end, by) in ends {
        let (left, most) = burst(&mut cached, by);
        assert!(left < most / 50, "entries that were {end}: {left} of {most} bytes are left");
    }
}
