//! Magazines: each thread's cache of free entries.
//!
//! A thread that cancels timers usually inserts timers, too. Each thread therefore has two
//! magazines of up to [`ROUNDS`] vacant entries of its home shard, one loaded and one spare. A
//! cancel puts its entry into the loaded magazine, and an insert takes the entry that was put there
//! last. Both are plain stores to the thread's own cache line. When the loaded magazine is full, it
//! becomes the spare one, and the former spare goes back to the shard's stack as a whole, by one
//! exchange. When both are empty, one is filled from the stack by one exchange. (Bonwick and Adams,
//! *Magazines and vmem*, USENIX 2001. There are two so that a thread at the edge of one does not go
//! to the stack at each step.)
//!
//! A magazine is a chain, as the stack is. The state of each entry points to the one that was put
//! in before it, so only the top and the count are stored.
//!
//! **Access.** Only the thread that holds the thread id accesses its magazines, so everything here
//! is relaxed. The content goes with the id to its next owner
//! ([`ThreadIds`](crate::wheel::thread_id::ThreadIds)). That may be the sweeper, which empties the
//! magazines of exited threads before it trims. A thread that finds trimming due empties its own.
//! While far more entries are vacant than in use, a thread that only ends timers puts no more of
//! them there. The threads that end a burst and then wait thus keep none of its pages. Apart from
//! that, a live thread that makes no more calls keeps its content, which is at most `2 * ROUNDS`
//! entries and as many pages.
//!
//! **Exhaustion.** An entry that goes back gets a later generation, as if it had been used once
//! more, because the magazine does not know which entries have been used since they came from the
//! stack. If one thread arms and another of the same home ends timers, an entry is therefore
//! exhausted after half as many timers.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Relaxed};
use crate::wheel::slab::vacant::VacantHead;

/// The capacity of a magazine, in entries.
#[cfg(not(any(modelled, tiny)))]
pub(crate) const ROUNDS: u32 = 16;
#[cfg(any(modelled, tiny))]
pub(crate) const ROUNDS: u32 = 2;

/// The vacant entries of one thread.
#[derive(Debug)]
pub(crate) struct Magazines {
    loaded: Magazine,
    /// Either full or empty.
    spare: Magazine,
}

/// Vacant entries, chained by their states.
#[derive(Debug)]
struct Magazine {
    /// The entry that was put in last. Arbitrary if the magazine is empty.
    top: AtomicU32,
    count: AtomicU32,
}

/// A chain of vacant entries that one thread holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rounds {
    pub(crate) top: u32,
    pub(crate) count: u32,
}

impl Rounds {
    const NONE: Rounds = Rounds { top: VacantHead::LAST, count: 0 };
}

impl Magazine {
    fn empty() -> Self {
        let Rounds { top, count } = Rounds::NONE;
        Self { top: AtomicU32::new(top), count: AtomicU32::new(count) }
    }

    #[inline]
    fn get(&self) -> Rounds {
        // Relaxed, as everywhere in this file: by the rule of this module no other thread writes
        // meanwhile.
        Rounds { top: self.top.load(Relaxed) & VacantHead::LAST, count: self.count.load(Relaxed) }
    }

    #[inline]
    fn set(&self, Rounds { top, count }: Rounds) {
        self.top.store(top, Relaxed);
        self.count.store(count, Relaxed);
    }

    /// Makes another entry the top, and adds `more` to the count, wrapping around zero.
    #[inline]
    fn become_top(&self, top: u32, more: u32) {
        self.top.store(top, Relaxed);
        // Read once more, so that no register has to hold it since the check.
        self.count.store(self.count.load(Relaxed).wrapping_add(more), Relaxed);
    }

    fn take(&self) -> Rounds {
        let rounds = self.get();
        self.set(Rounds::NONE);
        rounds
    }
}

impl Magazines {
    pub(crate) fn new() -> Self {
        Self { loaded: Magazine::empty(), spare: Magazine::empty() }
    }

    /// Returns the number of entries. For another thread it is an estimate.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.loaded.get().count) + u64::from(self.spare.get().count)
    }

    /// Returns the entry to take next, if any is loaded.
    #[inline]
    pub(crate) fn top(&self) -> Option<u32> {
        let Rounds { top, count } = self.loaded.get();
        (count > 0).then_some(top)
    }

    /// Takes the [top](Self::top), whose state points to `next`.
    #[inline]
    pub(crate) fn pop(&self, next: u32) {
        self.loaded.become_top(next, u32::MAX);
    }

    /// Returns the entry that the state of a further one has to reference, if there is room for it.
    #[inline]
    pub(crate) fn with_room(&self) -> Option<u32> {
        let Rounds { top, count } = self.loaded.get();
        (count < ROUNDS).then_some(top)
    }

    /// Adds an entry. There must be [room](Self::with_room).
    #[inline]
    pub(crate) fn push(&self, index: u32) {
        self.loaded.become_top(index, 1);
    }

    /// Makes room by exchanging the two magazines. Returns the content of the former spare.
    pub(crate) fn unload(&self) -> Option<Rounds> {
        let spare = self.spare.take();
        self.spare.set(self.loaded.take());
        (spare.count > 0).then_some(spare)
    }

    /// Loads the spare magazine. Returns `true` if it has entries.
    pub(crate) fn reload(&self) -> bool {
        let spare = self.spare.take();
        self.loaded.set(spare);
        spare.count > 0
    }

    /// Loads these entries. The loaded magazine must be empty.
    pub(crate) fn load(&self, rounds: Rounds) {
        self.loaded.set(rounds);
    }

    /// Takes all entries.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Rounds> {
        [self.loaded.take(), self.spare.take()].into_iter().filter(|rounds| rounds.count > 0)
    }
}
