//! [`ThreadState`]: what a wheel keeps for one caller, in cache lines that no other thread writes: its
//! last reading of the clock, its vacant entries, its counts.

#![forbid(unsafe_code)]

use crate::sync::{Relaxed, UnmodelledUsize};
use crate::wheel::cached_clock::CachedReading;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::slab::magazine::Magazines;
use crate::wheel::thread_id::{ThreadId, ThreadIds, thread_ids};
use crossbeam_utils::CachePadded;

/// What a wheel keeps for one caller.
#[derive(Debug)]
pub(crate) struct ThreadState {
    pub(crate) clock: CachedReading,
    pub(crate) counters: ThreadCounters,
    /// Vacant entries of the shard [`home`](Self::home).
    pub(crate) vacant: Magazines,
    /// The shard that the caller inserts into; none, where threads share an id.
    pub(crate) home: usize,
    /// Whether the wheel has a bound, which makes no case a common one.
    bounded: bool,
    /// The shard whose entries the caller keeps in its magazines when their timers end; none, after
    /// a look that found far more entries vacant than in use, until the caller inserts again.
    kept: UnmodelledUsize,
    /// The same; none, in a wheel with a bound.
    fast_home: UnmodelledUsize,
}

impl ThreadState {
    /// The shard for which the caller's case is a common one.
    #[inline]
    pub(crate) fn fast_home(&self) -> usize {
        // Relaxed, as all here: of the caller alone, or never written.
        self.fast_home.load(Relaxed)
    }

    /// Whether entries of this shard are kept in the caller's magazines when their timers end.
    pub(crate) fn keeps(&self, shard: usize) -> bool {
        self.kept.load(Relaxed) == shard
    }

    /// From now on the caller keeps entries in its magazines, or not.
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
    /// One for each id, the shared one last.
    all: Box<[CachePadded<ThreadState>; Self::LEN]>,
    #[cfg(not(modelled))]
    thread_ids: &'static ThreadIds,
    #[cfg(modelled)]
    thread_ids: ThreadIds,
}

impl ThreadStates {
    const LEN: usize = ThreadId::OWN as usize + 1;

    /// Of a wheel with so many shards, with a bound on its timers or not, where readings of the
    /// clock are used again for so long.
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

    /// That of the calling thread, unless this is its first call.
    #[inline]
    pub(crate) fn known(&self) -> Option<&ThreadState> {
        self.all.get(ThreadId::current().index as usize).map(|thread| &**thread)
    }

    /// That of the calling thread.
    #[inline]
    pub(crate) fn current(&self) -> &ThreadState {
        self.known().unwrap_or_else(|| self.first())
    }

    /// That of the calling thread, at its first call.
    #[cold]
    fn first(&self) -> &ThreadState {
        &self.all[ThreadId::acquire().index as usize]
    }

    /// What callers have counted together.
    pub(crate) fn sum(&self, count: ThreadCount) -> u64 {
        let own = self.own().map(|(_, thread)| thread.counters.get(count)).sum::<u64>();
        own + self.all[ThreadId::OWN as usize].counters.get(count)
    }

    /// Those under ids that threads have, or have had.
    fn own(&self) -> impl Iterator<Item = (u32, &ThreadState)> {
        (0..self.thread_ids.reached()).zip(self.all.iter().map(|thread| &**thread))
    }

    /// How many vacant entries are orphaned under free ids: a guess.
    pub(crate) fn orphaned(&self) -> u64 {
        let free = self.own().filter(|&(number, _)| self.thread_ids.is_free(number));
        free.map(|(_, thread)| thread.vacant.count()).sum()
    }

    /// Calls `visit` for what is orphaned under free ids, and for what the
    /// calling thread has.
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

    /// The ids of a model's threads.
    #[cfg(modelled)]
    pub(crate) fn thread_ids(&self) -> &ThreadIds {
        &self.thread_ids
    }
}
