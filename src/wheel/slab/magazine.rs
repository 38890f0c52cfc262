//! Magazines: the vacant entries that a caller keeps in its magazines.
//!
//! A caller that cancels also inserts. So each has two magazines of up to [`ROUNDS`] vacant entries
//! of its home shard, one loaded and one to spare: a cancel puts its entry into the loaded one, an
//! insert takes the last one put there, by plain stores to the caller's own cache line. When the
//! loaded magazine is full, it becomes the spare one, and the one to spare goes back to the shard's
//! stack, as a whole, by one exchange; when both are empty, one comes from there by one exchange.
//! (Bonwick and Adams, *Magazines and vmem*, USENIX 2001; two, so that a caller at the edge of
//! one does not go to the stack at each step.)
//!
//! A magazine is a chain, as the stack is: the state of each entry points to the one that was put
//! in before it. So only its top and its count are kept.
//!
//! **Who may.** The thread that has the caller's id, and nobody else: everything here is
//! relaxed. What it holds goes with the id to the next thread that has it
//! ([`ThreadIds`](crate::wheel::thread_id::ThreadIds)), the sweeper included, who empties the
//! magazines of those that have ended before it trims; a caller that finds trimming due empties its
//! own. While far more entries are vacant than in use, a caller that only ends timers puts no more
//! of them there: so the threads that end a burst and then wait keep none of its pages. Other than
//! that, a live thread that calls no more keeps what it has: at most `2 * ROUNDS` entries, and as
//! many pages.
//!
//! **Exhaustion.** An entry that goes back gets a later generation, as if it had been used once
//! more: the magazine does not know which have been used since they came from the stack. So where
//! one thread arms and another of the same home ends, an entry is exhausted after half as many
//! timers.

#![forbid(unsafe_code)]

use crate::sync::{AtomicU32, Relaxed};
use crate::wheel::slab::vacant::VacantHead;

/// How many entries a magazine holds.
#[cfg(not(any(modelled, tiny)))]
pub(crate) const ROUNDS: u32 = 16;
#[cfg(any(modelled, tiny))]
pub(crate) const ROUNDS: u32 = 2;

/// One caller's vacant entries.
#[derive(Debug)]
pub(crate) struct Magazines {
    loaded: Magazine,
    /// Full, or empty.
    spare: Magazine,
}

/// Vacant entries, chained by their states.
#[derive(Debug)]
struct Magazine {
    /// The entry that was put in last; whichever, in an empty one.
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
        // Relaxed, as all here: by the module's rule no other thread writes meanwhile.
        Rounds { top: self.top.load(Relaxed) & VacantHead::LAST, count: self.count.load(Relaxed) }
    }

    #[inline]
    fn set(&self, Rounds { top, count }: Rounds) {
        self.top.store(top, Relaxed);
        self.count.store(count, Relaxed);
    }

    /// Another entry is the top, of so many more, or fewer, around zero.
    #[inline]
    fn become_top(&self, top: u32, more: u32) {
        self.top.store(top, Relaxed);
        // Read once more, so that no register holds it from the look on.
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

    /// How many there are; of another thread's, a guess.
    pub(crate) fn count(&self) -> u64 {
        u64::from(self.loaded.get().count) + u64::from(self.spare.get().count)
    }

    /// The entry that is to be taken next, if any is loaded.
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

    /// If there is room for one more, the entry that its state has to reference.
    #[inline]
    pub(crate) fn with_room(&self) -> Option<u32> {
        let Rounds { top, count } = self.loaded.get();
        (count < ROUNDS).then_some(top)
    }

    /// Puts an entry in, where there is [room](Self::with_room).
    #[inline]
    pub(crate) fn push(&self, index: u32) {
        self.loaded.become_top(index, 1);
    }

    /// Makes room: the loaded magazine is the spare one now. Returns what was to spare.
    pub(crate) fn unload(&self) -> Option<Rounds> {
        let spare = self.spare.take();
        self.spare.set(self.loaded.take());
        (spare.count > 0).then_some(spare)
    }

    /// Loads what is to spare. Whether that is any.
    pub(crate) fn reload(&self) -> bool {
        let spare = self.spare.take();
        self.loaded.set(spare);
        spare.count > 0
    }

    /// Loads these, where nothing is loaded.
    pub(crate) fn load(&self, rounds: Rounds) {
        self.loaded.set(rounds);
    }

    /// Takes all there are.
    pub(crate) fn take_all(&self) -> impl Iterator<Item = Rounds> {
        [self.loaded.take(), self.spare.take()].into_iter().filter(|rounds| rounds.count > 0)
    }
}
