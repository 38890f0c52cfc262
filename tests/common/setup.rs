//! The setup of a wheel under test, of any shape, for the properties and the fuzz targets.

use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, ManualClock, Sweeper, Wheel};

/// The setup of a wheel under test.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) shards: usize,
    pub(crate) geometry: Geometry,
    /// Divisible by four, because the wheel's model counts in quarters of a tick.
    pub(crate) tick: Duration,
    pub(crate) first_tick: u64,
    pub(crate) capacity: Option<u64>,
}

impl Setup {
    /// Builds the wheel, in virtual time.
    pub(crate) fn build<T: Send>(&self) -> (Wheel<T>, Sweeper<T>, ManualClock) {
        let clock = ManualClock::new();
        let mut builder = Builder::new()
            .resolution(self.tick)
            .shards(self.shards)
            .clock(clock.clone())
            .__shape(self.geometry, self.first_tick);
        if let Some(capacity) = self.capacity {
            builder = builder.capacity(capacity);
        }
        let (wheel, sweeper) = builder.build().expect("the setup is in range");
        (wheel, sweeper, clock)
    }
}

#[cfg(not(fuzzing))]
pub(crate) use properties::any_setup;

#[cfg(not(fuzzing))]
mod properties {
    use super::{Duration, Geometry, Setup};
    use proptest::prelude::*;

    pub(crate) fn any_setup() -> impl Strategy<Value = Setup> {
        let geometry = prop_oneof![
            Just(Geometry { root_bits: 1, level_bits: 1, levels: 2, page_bits: 1 }),
            Just(Geometry { root_bits: 2, level_bits: 1, levels: 5, page_bits: 2 }),
            Just(Geometry { root_bits: 6, level_bits: 3, levels: 4, page_bits: 4 }),
            Just(Geometry::default()),
        ];
        let tick = prop_oneof![
            Just(Duration::from_micros(4)),
            Just(Duration::from_millis(1)),
            Just(Duration::from_secs(1)),
        ];
        let first_tick = prop_oneof![
            Just(0),
            (0..64_u64).prop_map(|before| (1 << 30) - before),
            (0..64_u64).prop_map(|before| (1 << 38) - before),
        ];
        let capacity = prop_oneof![3 => Just(None), 1 => (1..8_u64).prop_map(Some)];
        (1..4_usize, geometry, tick, first_tick, capacity).prop_map(
            |(shards, geometry, tick, first_tick, capacity)| Setup {
                shards,
                geometry,
                tick,
                first_tick,
                capacity,
            },
        )
    }
}

/// A setup as a fuzzer generates it.
#[cfg(fuzzing)]
#[derive(Debug, arbitrary::Arbitrary)]
pub(crate) struct Raw {
    shards: u8,
    geometry: [u8; 4],
    micros: u16,
    first_tick: u64,
    capacity: Option<u8>,
}

#[cfg(fuzzing)]
impl Raw {
    pub(crate) fn setup(&self) -> Setup {
        let [root, level, levels, page] = self.geometry.map(u32::from);
        Setup {
            shards: usize::from(self.shards % 4) + 1,
            geometry: Geometry {
                root_bits: root % 8 + 1,
                level_bits: level % 4 + 1,
                levels: levels % 5 + 1,
                page_bits: page % 6 + 1,
            },
            tick: Duration::from_micros((u64::from(self.micros) + 1) * 4),
            first_tick: self.first_tick % (1 << 40),
            capacity: self.capacity.map(|capacity| u64::from(capacity % 32) + 1),
        }
    }
}
