//! [`ThreadState`]: the state that a wheel keeps for one thread, in cache lines that no other
//! thread writes. It consists of the last reading of the clock, vacant entries, and counters.

#![forbid(unsafe_code)]

use crate::sync::{Relaxed, UnmodelledU32, UnmodelledUsize};
use crate::wheel::cached_clock::CachedReading;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::memory::Lazy;
use crate::wheel::slab::magazine::Magazines;
use crate::wheel::thread_id::{ThreadId, ThreadIds, thread_ids};
use crossbeam_utils::CachePadded;

/// The state that a wheel keeps for one thread.
#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) clock: CachedReading,
    pub(crate) counters: ThreadCounters,
    /// Vacant entries of the shard [`home`](Self::home).
    pub(crate) vacant: Magazines,
    /// The shard that the thread inserts into, or none if threads share the id.
    pub(crate) home: usize,
    /// The garbage that the thread has made, modulo 2^32.
    garbage: UnmodelledU32,
    /// The shard whose entries the thread keeps in its magazines when their timers end. It is none
    /// after a check that found far more entries vacant than in use, until the thread inserts
    /// again. The magazines are empty meanwhile.
    kept: UnmodelledUsize,
}

impl ThreadState {
    /// Creates the state of a thread whose home is this shard. With [`NOWHERE`] it is the state of
    /// threads that share it.
    fn new(home: usize, term_cycles: u64) -> Self {
        let shared = home == NOWHERE;
        Self {
            clock: CachedReading::new(if shared { 0 } else { term_cycles }),
            counters: ThreadCounters::new(shared),
            vacant: Magazines::new(),
            home,
            garbage: UnmodelledU32::new(0),
            kept: UnmodelledUsize::new(home),
        }
    }

    /// Returns `true` if the thread keeps entries of this shard in its magazines when their timers
    /// end.
    #[inline]
    pub(crate) fn keeps_entries_of(&self, shard: usize) -> bool {
        // Relaxed, as everywhere in this file: accessed by the thread alone, or never written.
        self.kept.load(Relaxed) == shard
    }

    /// Adds to the garbage that the thread has made, and returns the sum.
    pub(crate) fn add_garbage(&self, more: u32) -> u32 {
        // Relaxed: threads that share an id may lose each other's additions, and then check later.
        let sum = self.garbage.load(Relaxed).wrapping_add(more);
        self.garbage.store(sum, Relaxed);
        sum
    }

    /// Sets whether the thread keeps entries in its magazines.
    pub(crate) fn set_keeps_entries(&self, keeps: bool) {
        self.kept.store(if keeps { self.home } else { NOWHERE }, Relaxed);
    }
}

/// No shard has this number.
const NOWHERE: usize = usize::MAX;

/// The states of all threads. Each is made when the thread first calls the wheel, and then stays.
#[derive(Debug)]
pub(crate) struct ThreadStates {
    /// The states of the first ids, which are in use most.
    near: [Lazy<CachePadded<ThreadState>>; Self::NEAR],
    /// The states of all other ids.
    far: Lazy<[Lazy<CachePadded<ThreadState>>; Self::FAR]>,
    /// The state of the threads that share an id, or for which there is no memory.
    shared: CachePadded<ThreadState>,
    make: MakeThreadState,
    #[cfg(not(modelled))]
    thread_ids: &'static ThreadIds,
    #[cfg(modelled)]
    thread_ids: ThreadIds,
}

/// Makes the states of threads.
#[derive(Clone, Copy, Debug)]
struct MakeThreadState {
    shards: usize,
    term_cycles: u64,
}

impl MakeThreadState {
    /// Makes the state that belongs to an id.
    fn own(self, index: usize) -> CachePadded<ThreadState> {
        let home = index % self.shards;
        CachePadded::new(ThreadState::new(home, self.term_cycles))
    }

    /// Makes a place for it.
    fn place(self, index: usize) -> Lazy<CachePadded<ThreadState>> {
        Lazy::new(|| self.own(index))
    }

    /// Makes the places for the ids from `first` on.
    fn places<const N: usize>(self, first: usize) -> [Lazy<CachePadded<ThreadState>>; N] {
        std::array::from_fn(|offset| self.place(first + offset))
    }
}

impl ThreadStates {
    const NEAR: usize = if cfg!(modelled) { ThreadId::OWN as usize } else { 32 };
    const FAR: usize = ThreadId::OWN as usize - Self::NEAR;

    /// Creates the states for a wheel with `shards` shards. `term_cycles` tells for how long a
    /// reading of the clock is reused.
    pub(crate) fn new(shards: usize, term_cycles: u64) -> Self {
        let make = MakeThreadState { shards, term_cycles };
        Self {
            near: make.places(0),
            far: Lazy::new(|| make.places(Self::NEAR)),
            shared: CachePadded::new(ThreadState::new(NOWHERE, term_cycles)),
            make,
            thread_ids: thread_ids(),
        }
    }

    /// Returns the state of the calling thread, unless this is its first call, or it shares its id.
    #[inline]
    pub(crate) fn known(&self) -> Option<&ThreadState> {
        self.of(ThreadId::current().index as usize)
    }

    /// Returns the state that belongs to an id, if it has been made.
    #[inline]
    fn of(&self, index: usize) -> Option<&ThreadState> {
        // Two calls of `get`, because the address of the first would cost instructions of its own.
        let state = match self.near.get(index) {
            Some(near) => near.get(),
            None => self.far.get()?.get(index - Self::NEAR)?.get(),
        };
        state.map(|state| &**state)
    }

    /// Returns the state of the calling thread.
    #[inline]
    pub(crate) fn current(&self) -> &ThreadState {
        self.known().unwrap_or_else(|| self.current_slow())
    }

    /// The slow path of [`current`](Self::current), for the first call of a thread, and for threads
    /// that share an id.
    #[cold]
    fn current_slow(&self) -> &ThreadState {
        self.make(ThreadId::get_or_acquire().index as usize).unwrap_or(&self.shared)
    }

    /// Makes the state of an id. Returns `None` if the id is shared, or if there is no memory for
    /// its state.
    fn make(&self, index: usize) -> Option<&ThreadState> {
        if index >= ThreadId::OWN as usize {
            return None;
        }
        let state = match self.near.get(index) {
            Some(state) => state,
            None => {
                let far = self.far.get_or_make(|| self.make.places(Self::NEAR))?;
                far.get(index - Self::NEAR)?
            }
        };
        state.get_or_make(|| self.make.own(index)).map(|state| &**state)
    }

    /// Returns the sum of a count over all threads.
    pub(crate) fn sum(&self, count: ThreadCount) -> u64 {
        let own = self.own().map(|(_, thread)| thread.counters.get(count)).sum::<u64>();
        own + self.shared.counters.get(count)
    }

    /// Iterates over the states that belong to an id.
    ///
    /// A thread that has seen an effect of another one finds the state of that thread, which was
    /// made before.
    fn own(&self) -> impl Iterator<Item = (u32, &ThreadState)> {
        let ids = 0..self.thread_ids.reached();
        ids.filter_map(|number| Some((number, self.of(number as usize)?)))
    }

    /// Estimates the number of vacant entries that are orphaned under free ids.
    pub(crate) fn orphaned(&self) -> u64 {
        let free = self.own().filter(|&(number, _)| self.thread_ids.is_free(number));
        free.map(|(_, thread)| thread.vacant.count()).sum()
    }

    /// Calls `visit` for each state that is orphaned under a free id, and for the state of the
    /// calling thread.
    pub(crate) fn for_each_idle(&self, mut visit: impl FnMut(&ThreadState)) {
        let own = ThreadId::current().index;
        for (number, thread) in self.own() {
            if thread.vacant.count() == 0 {
                continue;
            }
            if number == own {
                visit(thread);
            } else if self.thread_ids.acquire(number) {
                visit(thread);
                self.thread_ids.release(number);
            }
        }
    }

    /// Returns the ids of a model's threads.
    #[cfg(modelled)]
    pub(crate) fn thread_ids(&self) -> &ThreadIds {
        &self.thread_ids
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{NOWHERE, ThreadStates};
    use crate::wheel::counters::ThreadCount;
    use crate::wheel::memory;
    use crate::wheel::thread_id::ThreadId;

    fn states() -> ThreadStates {
        ThreadStates::new(4, 0)
    }

    #[test]
    fn each_id_has_a_state_of_its_own() {
        let states = states();
        for index in 0..ThreadId::OWN as usize {
            assert!(states.of(index).is_none());
            let state = states.make(index).unwrap();
            state.counters.add(ThreadCount::Filed, 1);
            assert_eq!((state.home, state.counters.get(ThreadCount::Filed)), (index % 4, 1));
            assert!(std::ptr::eq(states.of(index).unwrap(), state));
        }
        assert!(states.of(ThreadId::OWN as usize).is_none());
        assert!(states.make(ThreadId::OWN as usize).is_none(), "its threads share a state");
    }

    #[test]
    fn a_thread_without_memory_for_its_state_uses_the_shared_one() {
        let states = states();
        memory::exhaust(true);
        assert!(states.make(0).is_none());
        assert_eq!(states.current().home, NOWHERE);
        states.current().counters.add(ThreadCount::Filed, 1);
        memory::exhaust(false);
        states.make(0).unwrap().counters.add(ThreadCount::Filed, 1);
        assert_eq!(states.sum(ThreadCount::Filed), 2);
    }
}
