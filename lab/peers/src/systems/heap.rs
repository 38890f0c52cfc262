//! A binary heap in a mutex, with a thread that sweeps it, as often written by hand.
//!
//! Deletion is lazy. A slab holds each timer's generation, and a reference in the heap with an
//! older generation is stale. When more than half are stale, the heap is rebuilt without them. A
//! reset makes the old reference stale and pushes a new one.

use crate::clock::now;
use crate::system::System;
use crate::tally::fired;
use crate::ticker;
use crate::workload::Move;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The greatest number of timers taken while the lock is held once.
const BATCH: usize = 256;

/// A timer, by its entry and the generation of the entry when it was armed or last reset.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryRef {
    entry: u32,
    generation: u32,
}

struct Entry {
    generation: u32,
    value: u64,
}

#[derive(Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Instant, EntryRef)>>,
    entries: Vec<Entry>,
    vacant: Vec<u32>,
    stale: usize,
    /// The instant of the next sweep, or `None` if the ticker sleeps until it is woken.
    swept_at: Option<Instant>,
}

impl Timers {
    /// Arms a timer. Returns `true` with it if the ticker must be woken.
    fn insert(&mut self, value: u64, deadline: Instant) -> (EntryRef, bool) {
        let entry = self.vacant.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value });
            u32::try_from(self.entries.len() - 1).expect("fewer timers than 2^32")
        });
        self.entries[entry as usize].value = value;
        self.push(entry, deadline)
    }

    fn cancel(&mut self, reference: EntryRef) -> Option<u64> {
        let value = self.claim(reference)?;
        self.vacant.push(reference.entry);
        self.pass();
        Some(value)
    }

    fn reset(&mut self, reference: EntryRef, deadline: Instant) -> Option<(EntryRef, bool)> {
        self.claim(reference)?;
        let renewed = self.push(reference.entry, deadline);
        self.pass();
        Some(renewed)
    }

    /// Moves due timers to `due`, one batch at most. Returns `true` if there may be more.
    fn expire(&mut self, now: Instant, due: &mut Vec<u64>) -> bool {
        while let Some(&Reverse((deadline, reference))) = self.heap.peek() {
            if deadline > now || due.len() == BATCH {
                break;
            }
            self.heap.pop();
            match self.claim(reference) {
                Some(value) => {
                    self.vacant.push(reference.entry);
                    due.push(value);
                }
                None => self.stale -= 1,
            }
        }
        self.swept_at = self.heap.peek().map(|Reverse((deadline, _))| *deadline);
        due.len() == BATCH
    }

    fn push(&mut self, entry: u32, deadline: Instant) -> (EntryRef, bool) {
        let reference = EntryRef { entry, generation: self.entries[entry as usize].generation };
        self.heap.push(Reverse((deadline, reference)));
        (reference, self.swept_at.is_none_or(|swept_at| deadline < swept_at))
    }

    /// Ends the generation of `reference` if it is current.
    fn claim(&mut self, reference: EntryRef) -> Option<u64> {
        let entry = &mut self.entries[reference.entry as usize];
        (entry.generation == reference.generation).then(|| {
            entry.generation = entry.generation.wrapping_add(1);
            entry.value
        })
    }

    /// Records that a reference in the heap is stale.
    fn pass(&mut self) {
        self.stale += 1;
        if self.stale * 2 > self.heap.len() {
            let entries = &self.entries;
            let live = |reference: EntryRef| {
                entries[reference.entry as usize].generation == reference.generation
            };
            self.heap.retain(|Reverse((_, reference))| live(*reference));
            self.stale = 0;
        }
    }
}

/// The heap behind its lock.
pub(crate) struct Locked {
    timers: Arc<Mutex<Timers>>,
    ticker: Thread,
    references: Vec<EntryRef>,
}

impl System for Locked {
    const NAME: &'static str = "heap";

    type Shared = (Arc<Mutex<Timers>>, Thread);

    fn start(_timers: usize) -> Self::Shared {
        let shared = Arc::new(Mutex::new(Timers::default()));
        let swept = Arc::clone(&shared);
        let mut due = Vec::with_capacity(BATCH);
        let ticker = ticker::spawn(move || {
            loop {
                let mut locked = swept.lock();
                let more = locked.expire(now(), &mut due);
                let next = locked.swept_at;
                drop(locked);
                due.drain(..).for_each(fired);
                if !more {
                    return next;
                }
            }
        });
        (shared, ticker)
    }

    fn caller((shared, ticker): Self::Shared, timers: usize) -> Self {
        Self { timers: shared, ticker, references: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            let deadline = now() + delay;
            let (reference, wakes) =
                self.timers.lock().insert(self.references.len() as u64, deadline);
            if wakes {
                self.ticker.unpark();
            }
            self.references.push(reference);
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let value = self.timers.lock().cancel(self.references[place]).expect("armed");
            let deadline = now() + delay;
            let (reference, wakes) = self.timers.lock().insert(value, deadline);
            if wakes {
                self.ticker.unpark();
            }
            self.references[place] = reference;
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let deadline = now() + delay;
            let renewed = self.timers.lock().reset(self.references[place], deadline);
            let (reference, wakes) = renewed.expect("armed");
            if wakes {
                self.ticker.unpark();
            }
            self.references[place] = reference;
        }
    }
}
