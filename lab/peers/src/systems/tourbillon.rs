//! Tourbillon with its driver, by plain operations and by pinned batches.

use crate::system::System;
use crate::tally::fired;
use crate::workload::Move;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::{Builder, Driver, Expired, Pinned, TimerId};

/// The number of operations for each `repin`.
const BATCH: usize = 64;

const ARMED: &str = "the timer is armed";
const OPEN: &str = "the wheel is open and the delay in its range";

/// Each operation by itself, as most callers use it.
pub(crate) struct Plain {
    driver: Arc<Driver<u64>>,
    ids: Vec<TimerId>,
}

/// Batches of operations under one guard, as an event loop uses it.
pub(crate) struct Batched(Plain);

impl System for Plain {
    const NAME: &'static str = "tourbillon";

    type Shared = Arc<Driver<u64>>;

    fn start(_timers: usize) -> Arc<Driver<u64>> {
        let driver = Builder::new().driver().spawn(|timer: Expired<u64>| fired(timer.value));
        Arc::new(driver.expect("the defaults are good"))
    }

    fn caller(driver: Arc<Driver<u64>>, timers: usize) -> Self {
        Self { driver, ids: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        let wheel = self.driver.wheel();
        for &delay in delays {
            self.ids.push(wheel.insert(self.ids.len() as u64, delay).expect(OPEN));
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        let wheel = self.driver.wheel();
        for &Move { place, delay } in moves {
            let value = wheel.cancel(self.ids[place]).expect(ARMED);
            self.ids[place] = wheel.insert(value, delay).expect(OPEN);
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        let wheel = self.driver.wheel();
        for &Move { place, delay } in moves {
            assert!(wheel.reset(self.ids[place], delay).expect(OPEN), "{ARMED}");
        }
    }
}

impl System for Batched {
    const NAME: &'static str = "tourbillon-pinned";

    type Shared = Arc<Driver<u64>>;

    fn start(timers: usize) -> Arc<Driver<u64>> {
        Plain::start(timers)
    }

    fn caller(driver: Arc<Driver<u64>>, timers: usize) -> Self {
        Self(Plain::caller(driver, timers))
    }

    fn insert(&mut self, delays: &[Duration]) {
        let Plain { driver, ids } = &mut self.0;
        let mut pinned = driver.wheel().pin();
        for batch in delays.chunks(BATCH) {
            pinned.repin();
            for &delay in batch {
                ids.push(pinned.insert(ids.len() as u64, delay).expect(OPEN));
            }
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        self.in_batches(moves, |pinned, id, delay| {
            let value = pinned.cancel(*id).expect(ARMED);
            *id = pinned.insert(value, delay).expect(OPEN);
        });
    }

    fn reset(&mut self, moves: &[Move]) {
        self.in_batches(moves, |pinned, id, delay| {
            assert!(pinned.reset(*id, delay).expect(OPEN), "{ARMED}");
        });
    }
}

impl Batched {
    /// Calls `verb` for each move, with one guard for each batch, whose timers are prefetched.
    #[inline]
    fn in_batches(
        &mut self,
        moves: &[Move],
        verb: impl Fn(&Pinned<'_, u64>, &mut TimerId, Duration),
    ) {
        let Plain { driver, ids } = &mut self.0;
        let mut pinned = driver.wheel().pin();
        for batch in moves.chunks(BATCH) {
            pinned.repin();
            batch.iter().for_each(|next| pinned.prefetch(ids[next.place]));
            for &Move { place, delay } in batch {
                verb(&pinned, &mut ids[place], delay);
            }
        }
    }
}
