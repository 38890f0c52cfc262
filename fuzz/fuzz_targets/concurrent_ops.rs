//! Runs real threads on one wheel with operations from the input. At the end every value has left
//! the wheel once.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::time::Duration;
use tourbillon::__internals::Geometry;
use tourbillon::{Builder, ManualClock, TimerId, Wheel};

const TICK: Duration = Duration::from_millis(1);
const PLACES: usize = 8;

struct Ledger {
    begun: AtomicUsize,
    ended: Vec<AtomicU8>,
    shared: [AtomicU64; PLACES],
}

impl Ledger {
    fn end(&self, value: usize) {
        assert_eq!(self.ended[value].fetch_add(1, Relaxed), 0, "{value} left twice");
    }
}

/// Runs one caller, with one operation per byte. Its values begin at `first`.
fn work(wheel: &Wheel<usize>, ledger: &Ledger, bytes: &[u8], first: usize) {
    for (n, byte) in bytes.iter().enumerate() {
        let place = &ledger.shared[usize::from(byte >> 5) % PLACES];
        let delay = TICK * u32::from(byte >> 2 & 7);
        match (byte & 3, TimerId::from_bits(place.load(Relaxed))) {
            (1, Some(id)) => {
                let _ = wheel.reset(id, delay);
            }
            (2, Some(id)) => {
                if let Some(value) = wheel.cancel(id) {
                    ledger.end(value);
                }
            }
            _ => {
                ledger.begun.fetch_add(1, Relaxed);
                match wheel.insert(first + n, delay) {
                    Ok(id) => place.store(id.to_bits(), Relaxed),
                    Err(refused) => ledger.end(refused.value),
                }
            }
        }
    }
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (shape, bytes) = input;
    let geometry = Geometry { root_bits: 1, level_bits: 1, levels: 3, page_bits: 1 };
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new()
        .shards(usize::from(shape % 2) + 1)
        .clock(clock.clone())
        .__shape(geometry, (1 << 38) - 4)
        .build::<usize>()
        .expect("the shape is in range");
    let ledger = Ledger {
        begun: AtomicUsize::new(0),
        ended: (0..bytes.len()).map(|_| AtomicU8::new(0)).collect(),
        shared: [const { AtomicU64::new(0) }; PLACES],
    };
    let (mine, theirs) = bytes.split_at(bytes.len() / 2);
    std::thread::scope(|scope| {
        // Joined explicitly, because a scope's implicit join lets threads outlive it briefly, which
        // the leak checker reports as a leak.
        let threads = [(mine, 0), (theirs, mine.len())].map(|(bytes, first)| {
            let (wheel, ledger) = (&wheel, &ledger);
            scope.spawn(move || work(wheel, ledger, bytes, first))
        });
        for _ in 0..4 {
            clock.advance(TICK);
            let _ = sweeper.sweep_some(3, |timer| ledger.end(timer.value));
        }
        if shape & 2 != 0 {
            wheel.close();
            wheel.drain().into_iter().for_each(|timer| ledger.end(timer.value));
        }
        for thread in threads {
            thread.join().expect("no caller panics");
        }
    });
    clock.advance(TICK * 20);
    let _ = sweeper.sweep(|timer| ledger.end(timer.value));
    assert!(wheel.is_empty());
    // Each end is counted once. Bytes that were no insert have no value.
    let ended = ledger.ended.iter().filter(|ended| ended.load(Relaxed) == 1).count();
    assert_eq!(ended, ledger.begun.load(Relaxed), "lost");
});
