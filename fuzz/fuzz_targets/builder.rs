//! Builds wheels with arbitrary configurations. Each gives a typed error or a wheel that works.

#![no_main]

use libfuzzer_sys::{arbitrary, fuzz_target};
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, ManualClock};

#[derive(Debug, arbitrary::Arbitrary)]
struct Input {
    resolution: (u64, u32),
    shards: Option<u16>,
    capacity: Option<u64>,
    geometry: Option<[u8; 4]>,
    first_tick: u64,
}

fuzz_target!(|input: Input| {
    let clock = ManualClock::new();
    let (seconds, nanos) = input.resolution;
    let resolution = Duration::new(seconds % 10_000, nanos % 1_000_000_000);
    let mut builder = Builder::new().resolution(resolution).clock(clock.clone());
    if let Some(shards) = input.shards {
        builder = builder.shards(shards.into());
    }
    if let Some(capacity) = input.capacity {
        builder = builder.capacity(capacity);
    }
    if let Some([root_bits, level_bits, levels, page_bits]) = input.geometry {
        // The geometry is bounded, so that the slots alone do not use up the memory of the machine.
        let [root_bits, level_bits] = [root_bits, level_bits].map(|bits| u32::from(bits % 20));
        let [levels, page_bits] = [levels, page_bits].map(|number| u32::from(number % 20));
        if root_bits.max(level_bits) > 10 && input.shards.unwrap_or(2) > 4 {
            return;
        }
        let geometry = Geometry { root_bits, level_bits, levels, page_bits };
        builder = builder.__shape(geometry, input.first_tick % (1 << 60));
    }
    let Ok((wheel, mut sweeper)) = builder.build() else {
        return;
    };
    let id = wheel.insert(7, resolution * 3).expect("three ticks are in range");
    clock.advance(resolution * 2);
    assert_eq!(sweeper.sweep(|_| ()).expired, 0);
    clock.advance(resolution);
    assert_eq!(sweeper.sweep(|timer| assert_eq!((timer.value, timer.id), (7, id))).expired, 1);
    assert!(wheel.is_empty());
});
