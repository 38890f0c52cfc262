//! [`ThreadState`]: the state that a wheel keeps for one thread, in cache lines that no other
//! thread writes. It consists of the last reading of the clock, vacant entries, and counters.

#![forbid(unsafe_code)]

use crate::sync::{Relaxed, UnmodelledUsize};
use crate::wheel::cached_clock::CachedReading;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
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
    /// `true` if the wheel has a bound. No case is on the fast path then.
    bounded: bool,
    /// The shard whose entries the thread keeps in its magazines when their timers end. It is none
    /// after a check that found far more entries vacant than in use, until the thread inserts
    /// again.
    kept: UnmodelledUsize,
    /// The same shard, or none in a wheel with a bound.
    fast_home: UnmodelledUsize,
}

impl ThreadState {
    /// Returns the shard for which this thread can take the fast path.
    #[inline]
    pub(crate) fn fast_home(&self) -> usize {
        // Relaxed, as everywhere in this file: accessed by the thread alone, or never written.
        self.fast_home.load(Relaxed)
    }

    /// Returns `true` if the thread keeps entries of this shard in its magazines when their timers
    /// end.
    pub(crate) fn keeps(&self, shard: usize) -> bool {
        self.kept.load(Relaxed) == shard
    }

    /// Sets whether the thread keeps entries in its magazines.
    pub(crate) fn keep(&self, keeps: bool) {
        let kept = if keeps { self.home } else { NOWHERE };
        self.kept.store(kept, Relaxed);
        self.fast_home.store(if self.bounded { NOWHERE } else { kept }, Relaxed);
    }
}

/// No shard has this number.
const NOWHERE: usize = usize::MAX;

/// The states of all threads.
#[derive(Debug)]
pub(crate) struct ThreadStates {
    /// One for each id. That of the shared id is the last.
    all: Box<[CachePadded<ThreadState>; Self::LEN]>,
    #[cfg(not(modelled))]
    thread_ids: &'static ThreadIds,
    #[cfg(modelled)]
    thread_ids: ThreadIds,
}

impl ThreadStates {
    const LEN: usize = ThreadId::OWN as usize + 1;

    /// Creates the states for a wheel with `shards` shards. `bounded` tells whether its timers have
    /// a bound, and `term_cycles` for how long a reading of the clock is reused.
    pub(crate) fn new(shards: usize, bounded: bool, term_cycles: u64) -> Self {
        let thread = |number| {
            let shared = number == ThreadId::OWN;
            let home = if shared { NOWHERE } else { number as usize % shards };
            let thread = ThreadState {
                clock: CachedReading::new(if shared { 0 } else { term_cycles }),
                counters: ThreadCounters::new(shared),
                vacant: Magazines::new(),
                home,
                bounded,
                kept: UnmodelledUsize::new(NOWHERE),
                fast_home: UnmodelledUsize::new(NOWHERE),
            };
            thread.keep(true);
            CachePadded::new(thread)
        };
        let number = |index: usize| u32::try_from(index).unwrap_or(ThreadId::OWN);
        let all = Box::new(std::array::from_fn(|index| thread(number(index))));
        Self { all, thread_ids: thread_ids() }
    }

    /// Returns the state of the calling thread, unless this is its first call.
    #[inline]
    pub(crate) fn known(&self) -> Option<&ThreadState> {
        self.all.get(ThreadId::current().index as usize).map(|thread| &**thread)
    }

    /// Returns the state of the calling thread.
    #[inline]
    pub(crate) fn current(&self) -> &ThreadState {
        self.known().unwrap_or_else(|| self.first())
    }

    /// The slow path of [`current`](Self::current), for the first call of a thread.
    #[cold]
    fn first(&self) -> &ThreadState {
        &self.all[ThreadId::acquire().index as usize]
    }

    /// Returns the sum of a count over all threads.
    pub(crate) fn sum(&self, count: ThreadCount) -> u64 {
        let own = self.own().map(|(_, thread)| thread.counters.get(count)).sum::<u64>();
        own + self.all[ThreadId::OWN as usize].counters.get(count)
    }

    /// Iterates over the states of the ids that threads have, or have had.
    fn own(&self) -> impl Iterator<Item = (u32, &ThreadState)> {
        (0..self.thread_ids.reached()).zip(self.all.iter().map(|thread| &**thread))
    }

    /// Estimates the number of vacant entries that are orphaned under free ids.
    pub(crate) fn orphaned(&self) -> u64 {
        let free = self.own().filter(|&(number, _)| self.thread_ids.is_free(number));
        free.map(|(_, thread)| thread.vacant.count()).sum()
    }

    /// Calls `visit` for each state that is orphaned under a free id, and for that of the calling
    /// thread.
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
