//! No timer, but the memory accesses that any timer needs. Nothing can be faster than this floor.
//!
//! A handle is the index of an entry in an array. An insert takes the next entry, stores into it
//! and exchanges its state. A cancel and a reset are one exchange on it. No clock is read, and no
//! reference is filed. Values that fire are in vectors behind locks, one for each millisecond.
//!
//! The *padded* variant executes as many additional instructions as tourbillon's operation does.
//! They wait for nothing, and nothing waits for them. Their own time is a few nanoseconds. Their
//! cost is that the processor reaches the next operation's entry later.
//!
//! The *clocked* variant reads the processor's counter before each operation, as a timer that is
//! armed by a delay must. Some processors wait at that read for all earlier loads, so that the
//! cache misses of neighbouring operations no longer overlap.

use crate::clock::now;
use crate::system::System;
use crate::tally::fired;
use crate::ticker;
use crate::workload::{Move, Workload};
use parking_lot::Mutex;
use std::arch::asm;
use std::hint::black_box;
use std::marker::PhantomData;
use std::mem::take;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The number of milliseconds that have a vector. No timer fires later.
const AHEAD: u128 = 1 << 16;
/// The time between two sweeps of due vectors.
const TICK: Duration = Duration::from_millis(1);

#[derive(Default)]
pub(crate) struct Entry {
    state: AtomicU64,
    deadline: AtomicU64,
    value: AtomicU64,
}

/// The array, and the number of its entries that are taken.
pub(crate) struct Array {
    entries: Vec<Entry>,
    taken: AtomicUsize,
}

fn millis(delay: Duration) -> u64 {
    delay.as_secs() * 1000 + u64::from(delay.subsec_millis())
}

/// Operations on entries.
pub(crate) struct Entries<W: Work> {
    array: Arc<Array>,
    held: Vec<usize>,
    work: PhantomData<W>,
}

/// The work before each operation, in addition to its memory accesses.
pub(crate) trait Work {
    const NAME: &'static str;

    fn before_insert();
    fn before_cancel_insert();
    fn before_reset();
}

/// No work.
pub(crate) struct Bare;

impl Work for Bare {
    const NAME: &'static str = "floor";

    fn before_insert() {}
    fn before_cancel_insert() {}
    fn before_reset() {}
}

/// As many instructions as an operation of tourbillon has.
pub(crate) struct Padded;

impl Work for Padded {
    const NAME: &'static str = "floor-padded";

    #[inline]
    fn before_insert() {
        pad::<{ longer::INSERT }>();
    }

    #[inline]
    fn before_cancel_insert() {
        pad::<{ longer::CANCEL_INSERT }>();
    }

    #[inline]
    fn before_reset() {
        pad::<{ longer::RESET }>();
    }
}

/// One read of the processor's counter.
pub(crate) struct Clocked;

impl Work for Clocked {
    const NAME: &'static str = "floor-clocked";

    #[inline]
    fn before_insert() {
        black_box(counter());
    }

    #[inline]
    fn before_cancel_insert() {
        black_box(counter());
    }

    #[inline]
    fn before_reset() {
        black_box(counter());
    }
}

/// Reads the processor's counter, unordered.
#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: reads a register that every x86-64 processor has.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Reads the clock, for want of a counter.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> Instant {
    now()
}

/// The number of instructions that a plain operation of tourbillon has beyond the floor's
/// (`ci/measure instructions`, less about 15).
mod longer {
    pub(super) const INSERT: usize = 200;
    pub(super) const CANCEL_INSERT: usize = 192;
    pub(super) const RESET: usize = 80;
}

/// `COUNT` instructions, a multiple of four, that depend on nothing.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a call would add instructions")]
fn pad<const COUNT: usize>() {
    // SAFETY: computes addresses and discards them.
    unsafe {
        asm!(
            ".rept {count} / 4",
            "lea {0}, [rsp + 1]",
            "lea {1}, [rsp + 2]",
            "lea {2}, [rsp + 3]",
            "lea {3}, [rsp + 4]",
            ".endr",
            out(reg) _,
            out(reg) _,
            out(reg) _,
            out(reg) _,
            count = const COUNT,
            options(nomem, nostack, preserves_flags),
        );
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "as above")]
fn pad<const COUNT: usize>() {
    // SAFETY: does nothing.
    unsafe { asm!(".rept {count}", "nop", ".endr", count = const COUNT, options(nomem, nostack)) }
}

impl<W: Work> Entries<W> {
    /// Stores into an entry and exchanges its state.
    fn write(entry: &Entry, value: u64, delay: Duration) {
        let deadline = millis(delay);
        // Relaxed: the exchange below publishes them.
        entry.value.store(value, Ordering::Relaxed);
        entry.deadline.store(deadline, Ordering::Relaxed);
        // AcqRel: as a timer would need. No thread reads it here.
        entry.state.swap(deadline, Ordering::AcqRel);
    }

    /// Exchanges an entry's state for one that depends on the rest of the entry.
    fn exchange(entry: &Entry, new: u64) -> bool {
        // Acquire, AcqRel: as above.
        let state = entry.state.load(Ordering::Acquire);
        let new = new + entry.deadline.load(Ordering::Relaxed) % 2;
        let changed = entry.state.compare_exchange(state, new, Ordering::AcqRel, Ordering::Acquire);
        changed.is_ok()
    }
}

impl<W: Work> System for Entries<W> {
    const NAME: &'static str = W::NAME;

    type Shared = Arc<Array>;

    fn start(timers: usize) -> Arc<Array> {
        let entries = (0..timers).map(|_| Entry::default()).collect();
        Arc::new(Array { entries, taken: AtomicUsize::new(0) })
    }

    fn caller(array: Arc<Array>, timers: usize) -> Self {
        Self { array, held: Vec::with_capacity(timers), work: PhantomData }
    }

    fn can(workload: Workload) -> bool {
        workload != Workload::Fire
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            W::before_insert();
            // Relaxed: only assigns entries.
            let entry = self.array.taken.fetch_add(1, Ordering::Relaxed);
            Self::write(&self.array.entries[entry], self.held.len() as u64, delay);
            self.held.push(entry);
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            W::before_cancel_insert();
            let entry = &self.array.entries[self.held[place]];
            assert!(Self::exchange(entry, 0));
            // Relaxed: this caller wrote it.
            let value = black_box(entry.value.load(Ordering::Relaxed));
            Self::write(entry, value, delay);
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            W::before_reset();
            let entry = &self.array.entries[self.held[place]];
            assert!(Self::exchange(entry, millis(delay)));
        }
    }
}

/// Values, grouped by the millisecond when they are due.
pub(crate) struct Vectors {
    due: Arc<Vec<Mutex<Vec<u64>>>>,
    origin: Instant,
    inserted: u64,
}

/// The vector of a millisecond since the start.
fn at(due: &[Mutex<Vec<u64>>], milli: u128) -> &Mutex<Vec<u64>> {
    &due[(milli % AHEAD) as usize]
}

impl System for Vectors {
    const NAME: &'static str = "floor-vectors";

    type Shared = (Arc<Vec<Mutex<Vec<u64>>>>, Instant);

    fn start(_timers: usize) -> Self::Shared {
        let due: Arc<Vec<_>> = Arc::new((0..AHEAD).map(|_| Mutex::default()).collect());
        let (swept, origin, mut next) = (Arc::clone(&due), now(), 0);
        ticker::spawn(move || {
            let ended = origin.elapsed().as_millis();
            (next..ended)
                .for_each(|milli| take(&mut *at(&swept, milli).lock()).into_iter().for_each(fired));
            next = ended.max(next);
            Some(now() + TICK)
        });
        (due, origin)
    }

    fn caller((due, origin): Self::Shared, _timers: usize) -> Self {
        Self { due, origin, inserted: 0 }
    }

    fn can(workload: Workload) -> bool {
        workload == Workload::Fire
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            let milli = (self.origin.elapsed() + delay).as_millis();
            at(&self.due, milli).lock().push(self.inserted);
            self.inserted += 1;
        }
    }

    fn cancel_insert(&mut self, _moves: &[Move]) {
        unreachable!("it only fires")
    }

    fn reset(&mut self, _moves: &[Move]) {
        unreachable!("it only fires")
    }
}
