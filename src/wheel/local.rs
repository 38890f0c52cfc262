//! [`Local`]: what a wheel keeps for one caller, in cache lines that no other thread writes: its
//! last reading of the clock, its vacant entries, its counts.

#![forbid(unsafe_code)]

use crate::sync::{OwnWord, Relaxed};
use crate::wheel::cached_clock::CachedReading;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::slab::magazine::Magazines;
use crate::wheel::thread_id::{ThreadId, ThreadIds, thread_ids};
use crossbeam_utils::CachePadded;

/// What a wheel keeps for one caller.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) clock: CachedReading,
    pub(crate) counters: ThreadCounters,
    /// Vacant entries of the shard [`home`](Self::home).
    pub(crate) vacant: Magazines,
    /// The shard that the caller inserts into; none, where threads share an id.
    pub(crate) home: usize,
    /// Whether the wheel has a bound, which makes no case a common one.
    bounded: bool,
    /// The shard whose entries the caller keeps in its hand when their timers end; none, after a
    /// look that found far more entries vacant than in use, until the caller inserts again.
    kept: OwnWord,
    /// The same; none, in a wheel with a bound.
    common: OwnWord,
}

impl Local {
    /// The shard for which the caller's case is a common one.
    #[inline]
    pub(crate) fn common(&self) -> usize {
        // Relaxed, as all here: of the caller alone, or never written.
        self.common.load(Relaxed)
    }

    /// Whether entries of this shard are kept in the caller's hand when their timers end.
    pub(crate) fn keeps(&self, shard: usize) -> bool {
        self.kept.load(Relaxed) == shard
    }

    /// From now on the caller keeps entries in its hand, or not.
    pub(crate) fn keep(&self, keeps: bool) {
        let kept = if keeps { self.home } else { NOWHERE };
        self.kept.store(kept, Relaxed);
        self.common.store(if self.bounded { NOWHERE } else { kept }, Relaxed);
    }
}

/// No shard has this number.
const NOWHERE: usize = usize::MAX;

/// The locals of all callers.
#[derive(Debug)]
pub(crate) struct Locals {
    /// One for each id, the shared one last.
    all: Box<[CachePadded<Local>; Self::LEN]>,
    #[cfg(not(modelled))]
    thread_ids: &'static ThreadIds,
    #[cfg(modelled)]
    thread_ids: ThreadIds,
}

impl Locals {
    const LEN: usize = ThreadId::OWN as usize + 1;

    /// Of a wheel with so many shards, with a bound on its timers or not, where readings of the
    /// clock are used again for so long.
    pub(crate) fn new(shards: usize, bounded: bool, term_cycles: u64) -> Self {
        let local = |number| {
            let shared = number == ThreadId::OWN;
            let home = if shared { NOWHERE } else { number as usize % shards };
            let local = Local {
                clock: CachedReading::new(if shared { 0 } else { term_cycles }),
                counters: ThreadCounters::new(shared),
                vacant: Magazines::new(),
                home,
                bounded,
                kept: OwnWord::new(NOWHERE),
                common: OwnWord::new(NOWHERE),
            };
            local.keep(true);
            CachePadded::new(local)
        };
        let number = |index: usize| u32::try_from(index).unwrap_or(ThreadId::OWN);
        let all = Box::new(std::array::from_fn(|index| local(number(index))));
        Self { all, thread_ids: thread_ids() }
    }

    /// That of the calling thread, unless this is its first call.
    #[inline]
    pub(crate) fn known(&self) -> Option<&Local> {
        self.all.get(ThreadId::current().index as usize).map(|local| &**local)
    }

    /// That of the calling thread.
    #[inline]
    pub(crate) fn current(&self) -> &Local {
        self.known().unwrap_or_else(|| self.first())
    }

    /// That of the calling thread, at its first call.
    #[cold]
    fn first(&self) -> &Local {
        &self.all[ThreadId::acquire().index as usize]
    }

    /// What callers have counted together.
    pub(crate) fn sum(&self, count: ThreadCount) -> u64 {
        let own = self.own().map(|(_, local)| local.counters.get(count)).sum::<u64>();
        own + self.all[ThreadId::OWN as usize].counters.get(count)
    }

    /// Those under ids that threads have, or have had.
    fn own(&self) -> impl Iterator<Item = (u32, &Local)> {
        (0..self.thread_ids.reached()).zip(self.all.iter().map(|local| &**local))
    }

    /// How many vacant entries are left behind under ids that nobody has: a guess.
    pub(crate) fn left_behind(&self) -> u64 {
        let free = self.own().filter(|&(number, _)| self.thread_ids.is_free(number));
        free.map(|(_, local)| local.vacant.count()).sum()
    }

    /// Calls `visit` for what is left behind under the ids that nobody has, and for what the
    /// calling thread has.
    pub(crate) fn for_each_idle(&self, mut visit: impl FnMut(&Local)) {
        let own = ThreadId::current().index;
        for (number, local) in self.own() {
            if local.vacant.count() == 0 {
                continue;
            }
            if number == own {
                visit(local);
            } else if self.thread_ids.acquire(number) {
                visit(local);
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
