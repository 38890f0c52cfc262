//! The traced systems, which are the wheel and a heap in a lock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tourbillon::__internals::traced::{Access, record};
use tourbillon::{Builder, ManualClock, Sweeper, TimerId, Wheel};

/// Timers that any thread may use, identified by numbers.
pub(crate) trait System: Send + Sync + 'static {
    fn insert(&self, delay: Duration) -> u64;
    fn cancel(&self, id: u64);
    fn reset(&self, id: u64, delay: Duration);
    /// Advances the time and fires due timers. Returns their number.
    fn fire(&self, passed: Duration) -> u64;
}

/// The wheel and its sweeper.
pub(crate) struct Ours {
    wheel: Wheel<u64>,
    sweeper: Mutex<Sweeper<u64>>,
    clock: ManualClock,
}

impl Ours {
    pub(crate) fn new() -> Self {
        let clock = ManualClock::new();
        // The number of shards on a machine with 64 cores.
        let built = Builder::new().shards(64).clock(clock.clone()).build();
        let (wheel, sweeper) = built.expect("the defaults are good");
        Self { wheel, sweeper: Mutex::new(sweeper), clock }
    }
}

fn id(bits: u64) -> TimerId {
    TimerId::from_bits(bits).expect("an id that was given out")
}

impl System for Ours {
    fn insert(&self, delay: Duration) -> u64 {
        self.wheel.insert(7, delay).expect("the wheel is open and the delay in its range").to_bits()
    }

    fn cancel(&self, bits: u64) {
        assert_eq!(self.wheel.cancel(id(bits)), Some(7), "armed");
    }

    fn reset(&self, bits: u64, delay: Duration) {
        assert!(self.wheel.reset(id(bits), delay).expect("the delay is in range"), "armed");
    }

    fn fire(&self, passed: Duration) -> u64 {
        self.clock.advance(passed);
        let mut sweeper = self.sweeper.lock().unwrap_or_else(PoisonError::into_inner);
        sweeper.sweep(|timer| assert_eq!(timer.value, 7)).expired as u64
    }
}

/// A binary heap in a lock, as the lines of its lock, its header, an entry and a place in the heap.
#[derive(Default)]
pub(crate) struct Heap {
    lock: Box<Line>,
    timers: Mutex<Timers>,
}

/// A value on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Line(u64);

#[derive(Default)]
struct Timers {
    header: Box<Line>,
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
    entries: Vec<[u64; 2]>,
    vacant: Vec<u64>,
    now: Duration,
}

impl Heap {
    fn locked<R>(&self, work: impl FnOnce(&mut Timers) -> R) -> R {
        record(&self.lock.0, Access::Exchange);
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        record(&timers.header.0, Access::Write);
        let worked = work(&mut timers);
        record(&self.lock.0, Access::Exchange);
        worked
    }
}

impl Timers {
    /// Pushes a reference into the heap.
    fn push(&mut self, id: u64, delay: Duration) {
        self.heap.push(Reverse((self.now + delay, id)));
        // It is added at the end and rarely moves far, as these deadlines are not earlier than
        // others.
        if let Some(end) = self.heap.as_slice().last() {
            record(end, Access::Write);
        }
    }

    fn touch(&self, id: u64) {
        let entry = usize::try_from(id).ok().and_then(|id| self.entries.get(id));
        record(entry.expect("an id that was given out"), Access::Write);
    }
}

impl System for Heap {
    fn insert(&self, delay: Duration) -> u64 {
        self.locked(|timers| {
            let id = timers.vacant.pop().unwrap_or_else(|| {
                // Far from the places that move.
                if timers.entries.capacity() == 0 {
                    timers.entries.reserve(1 << 20);
                    timers.heap.reserve(1 << 21);
                }
                timers.entries.push([0; 2]);
                timers.entries.len() as u64 - 1
            });
            timers.touch(id);
            timers.push(id, delay);
            id
        })
    }

    fn cancel(&self, id: u64) {
        // The reference in the heap is discarded when it is visited.
        self.locked(|timers| {
            timers.touch(id);
            timers.vacant.push(id);
        });
    }

    fn reset(&self, id: u64, delay: Duration) {
        self.locked(|timers| {
            timers.touch(id);
            timers.push(id, delay);
        });
    }

    fn fire(&self, passed: Duration) -> u64 {
        self.locked(|timers| {
            timers.now += passed;
            let mut fired = 0;
            while timers.heap.peek().is_some_and(|&Reverse((at, _))| at <= timers.now) {
                if let Some(root) = timers.heap.as_slice().first() {
                    record(root, Access::Write);
                }
                let Some(Reverse((_, id))) = timers.heap.pop() else { break };
                timers.touch(id);
                fired += 1;
            }
            fired
        })
    }
}
