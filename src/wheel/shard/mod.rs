//! One shard: a slab of timers and a hierarchy of slots with the references to their entries.
//!
//! Each entry has two words. Its **state** ([`EntryState`]: generation, refiling flag, deadline)
//! decides what may happen to the timer in it. Its **next visit** ([`AtomicNextVisit`]: a tick) is
//! the tick at which the earliest known reference will be visited. References and `next_visit`
//! belong to the entry and not to the timer. They outlive the timer, and the next timer of the
//! entry uses them, so a server that arms and cancels a timer for each request files a reference
//! once per revolution and not once per request.
//!
//! The invariants I1 and I2 are in [`crate::wheel`]. [`protocol`](crate::wheel::ops::protocol) has
//! the steps of each operation and the races.
//!
//! [`EntryState`]: crate::wheel::slab::state::EntryState
//! [`AtomicNextVisit`]: crate::wheel::slab::next_visit::AtomicNextVisit

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use crate::wheel::hierarchy::Hierarchy;
use crate::wheel::hierarchy::block::EntryRef;
use crate::wheel::hierarchy::geometry::{Levels, Place};
use crate::wheel::id::{Generation, ShardNumber, TimerId};
use crate::wheel::memory::{pin, prefetch};
use crate::wheel::progress::Progress;
use crate::wheel::progress::next_scan::NextScan;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::slab::Slab;
use crate::wheel::slab::entry::Entry;
use crate::wheel::tick::Tick;
use crossbeam_utils::CachePadded;
use std::sync::Arc;

/// One shard of the wheel.
#[derive(Debug)]
pub(crate) struct Shard<T> {
    pub(in crate::wheel) number: ShardNumber,
    pub(in crate::wheel) slab: Slab<Entry<T>>,
    pub(in crate::wheel) hierarchy: Hierarchy,
    pub(in crate::wheel) next_scan: CachePadded<NextScan>,
}

/// References filed and blocks made by one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Filed {
    pub(crate) references: u32,
    pub(crate) blocks: u32,
}

impl Filed {
    pub(crate) const NOTHING: Filed = Filed { references: 0, blocks: 0 };

    /// Returns the sum of both.
    pub(crate) fn and(self, more: Filed) -> Filed {
        Filed { references: self.references + more.references, blocks: self.blocks + more.blocks }
    }
}

impl<T> Shard<T> {
    pub(crate) fn new(number: usize, page_bits: u32, levels: Arc<Levels>) -> Self {
        Self {
            number: ShardNumber::new(number),
            slab: Slab::new(page_bits, Generation::drawn()),
            hierarchy: Hierarchy::new(number, levels),
            next_scan: CachePadded::new(NextScan::new()),
        }
    }

    /// Returns `true` if the timer of `id` is armed.
    #[inline]
    pub(crate) fn contains(&self, id: TimerId) -> bool {
        let guard = pin();
        let entry = self.slab.entry(id.index(), &guard);
        entry.is_some_and(|entry| entry.state.load().is_of(id))
    }

    /// Returns the deadline of the timer of `id`, if it is armed.
    pub(crate) fn deadline(&self, id: TimerId, progress: &Progress) -> Option<Tick> {
        let state = self.slab.entry(id.index(), &pin())?.state.load();
        (state.generation() == id.generation()).then(|| state.deadline(progress.swept()))
    }

    /// Calls `visit` with the deadline of each armed timer, as of the time when it is read. Does
    /// not pass the id, which no thread may have before the insert has returned.
    pub(crate) fn for_each_armed(&self, progress: &Progress, mut visit: impl FnMut(Tick)) {
        self.slab.for_each(&pin(), |_, entry| {
            let state = entry.state.load();
            if state.is_armed() {
                visit(state.deadline(progress.swept()));
            }
        });
    }

    /// Prefetches the entry at `index`, so that the cache misses of several entries overlap.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32) {
        if let Some(entry) = self.slab.entry(index, &pin()) {
            prefetch(entry);
        }
    }

    /// Returns the maximum number of entries in the slab.
    pub(crate) fn most_entries(&self) -> u64 {
        u64::from(TimerId::INDICES) - self.slab.page_len()
    }

    /// Files the reference of an insert. Returns `None` if there is no memory for it.
    #[inline(always)]
    pub(in crate::wheel) fn try_file(&self, index: u32, place: Place) -> Option<Filed> {
        let made = self.hierarchy.file(EntryRef::new(index), place)?;
        Some(Filed { references: 1, blocks: u32::from(made) })
    }

    /// Files a reference to the entry of a timer that must not be lost. See
    /// [`Hierarchy::file_or_abort`].
    pub(in crate::wheel) fn file(&self, index: u32, place: Place) -> Filed {
        let made = self.hierarchy.file_or_abort(EntryRef::new(index), place);
        Filed { references: 1, blocks: u32::from(made) }
    }

    /// Step F3. Returns `true` if the sweeper visits a reference that the caller has filed at
    /// `place` in time, and is awake by then. Called after the caller's fence. If it returns
    /// `false`, the caller has to [`report`](Self::report) the shard.
    #[inline]
    pub(in crate::wheel) fn is_expected(&self, place: Place) -> bool {
        match place {
            Place::Slot { at, .. } => !self.next_scan.is_after(at),
            Place::Overdue => false,
        }
    }

    /// Does F4 and F5: reports the shard, and passes another fence, after which the caller has to
    /// re-check the sweep and the wake-up. Returns `true` if a sweeper that rests is wanted.
    #[cold]
    #[inline(never)]
    pub(in crate::wheel) fn report(&self, progress: &Progress) -> bool {
        let again = progress.reports().add(self.number.index());
        full_fence();
        // Until the sweeper accepts a report, each further reference costs its filer a report and a
        // fence. The second therefore wakes a resting sweeper, once. (Not in models, where this
        // would hide the loss of another wake-up.)
        again && !cfg!(modelled)
    }
}

/// Returns `true` if a reference will be visited at `next_visit`, and that is not after `deadline`.
#[inline]
pub(in crate::wheel) fn in_time(next_visit: Tick, deadline: Tick, swept: Tick) -> bool {
    swept < next_visit && next_visit <= deadline
}

/// Returns the tick at which a reference at `place` is visited, if it was filed when the sweep was
/// at `swept`.
#[inline]
pub(in crate::wheel) fn visit_tick(place: Place, swept: Tick) -> Tick {
    match place {
        Place::Overdue => swept,
        Place::Slot { at, .. } => at,
    }
}

/// Returns `true` if the sweep, which has reached `swept`, may have missed a reference that was
/// just filed at `place`, and would visit it only when its slot expires once more. An overdue
/// reference is visited by the next sweep. That is too late only if the sweep has left the deadline
/// behind.
#[inline]
pub(in crate::wheel) fn has_passed(place: Place, deadline: Tick, swept: Tick) -> bool {
    match place {
        Place::Overdue => deadline.is_left_behind(swept),
        Place::Slot { at, .. } => at <= swept,
    }
}
