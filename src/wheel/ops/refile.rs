//! Refiling: file a reference to the entry of an armed timer that is visited earlier than the old
//! ones, and publish it in the entry's `next_visit`. The steps and their races are in
//! [`protocol`](super::protocol).

#![forbid(unsafe_code)]

use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::block::REFERENCES;
use crate::wheel::hierarchy::geometry::Place;
use crate::wheel::id::TimerId;
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::shard::{Filed, Shard, has_passed, in_time, visit_tick};
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::next_visit::AtomicNextVisit;
use crate::wheel::slab::state::{AtomicEntryState, EntryState};
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Counts what an operation has filed, and checks the memory from time to time.
    #[inline]
    pub(super) fn count_filed(&self, thread: &ThreadState, Filed { references, blocks }: Filed) {
        if references == 0 {
            return;
        }
        thread.counters.add(ThreadCount::Filed, u64::from(references));
        if blocks > 0 {
            thread.counters.add(ThreadCount::Blocks, u64::from(blocks));
            // The others that find room in them are counted here, too.
            #[allow(clippy::cast_possible_truncation, reason = "a block has few references")]
            self.note_garbage(thread, blocks * REFERENCES as u32);
        }
    }
}

impl<T> Shard<T> {
    /// Does R2 and R3: ensures that a reference is visited in time, for a timer whose state was
    /// exchanged while the flag was clear. It is the reference that `next_visit` describes, or a
    /// new one.
    #[inline]
    pub(super) fn ensure_reference(
        &self,
        entry: &Entry<T>,
        target: Target,
        progress: &Progress,
    ) -> Filed {
        match refiler_for(entry, target.deadline, progress) {
            None => Filed::NOTHING,
            Some(Refiler::Owner) => self.refile(entry, target, progress),
            Some(Refiler::Helper) => self.refile_as(Refiler::Helper, entry, target, progress),
        }
    }

    /// Does R3 to R7: files a reference to an armed timer that is visited earlier than the old
    /// ones. Owns the refiling flag meanwhile, if it is free.
    #[cold]
    pub(super) fn refile(&self, entry: &Entry<T>, target: Target, progress: &Progress) -> Filed {
        let mut seen = entry.state.load();
        while seen.generation() == target.id.generation() {
            if seen.is_refiling() {
                return self.refile_as(Refiler::Helper, entry, target, progress);
            }
            match entry.state.try_reset(seen, seen.refiling()) {
                Ok(()) => return self.refile_as(Refiler::Owner, entry, target, progress),
                Err(now) => seen = now,
            }
        }
        Filed::NOTHING
    }

    /// Does R4 to R7 ([`protocol`](super::protocol)), or R4 and R6 as a helper, with F1 to F7.
    #[inline(never)]
    pub(super) fn refile_as(
        &self,
        refiler: Refiler,
        entry: &Entry<T>,
        Target { id, mut deadline }: Target,
        progress: &Progress,
    ) -> Filed {
        let _flag = (refiler == Refiler::Owner).then(|| Flag(&entry.state));
        let mut filed = Filed::NOTHING;
        loop {
            let mut state = entry.state.load();
            if state.generation() != id.generation() {
                return filed;
            }
            let swept = progress.swept();
            if deadline.is_left_behind(swept) {
                state = raise_to_oldest(entry, state, deadline, swept.oldest());
                deadline = swept.oldest();
                if state.generation() != id.generation() {
                    return filed;
                }
            }
            let place = self.hierarchy.place(half_way_to(state.deadline(swept), swept), swept);
            filed = filed.and(self.file(id.index(), place));
            if refiler == Refiler::Owner {
                set_next_visit(&entry.next_visit, place, swept);
            }
            full_fence();
            if self.is_expected(place) {
                return filed;
            }
            let wanted = self.report(progress);
            if !has_passed(place, deadline, progress.swept()) {
                progress.wakeup().wake_before(visit_tick(place, swept), wanted);
                return filed;
            }
        }
    }
}

/// Step R7. Clears the refiling flag of an entry when it is dropped, even if the waker panics.
struct Flag<'e>(&'e AtomicEntryState);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.clear_refiling();
    }
}

/// Returns the tick for which a timer that was pulled forward to `deadline` is filed, which is half
/// way there. A timer that was pulled forward once is likely to be pulled forward again, and then
/// relies on this reference. Otherwise the reference is visited on the way and filed again. Less
/// than four ticks ahead, that is not worthwhile.
#[inline]
fn half_way_to(deadline: Tick, swept: Tick) -> Tick {
    deadline.minus(deadline.since(swept) / 4 * 2)
}

/// Sets the oldest deadline that can be represented for a timer whose deadline the sweep has left
/// behind, unless another thread has reset it since. Returns its state after that.
#[cold]
fn raise_to_oldest<T>(
    entry: &Entry<T>,
    mut state: EntryState,
    deadline: Tick,
    oldest: Tick,
) -> EntryState {
    let generation = state.generation();
    while state.generation() == generation && state == state.with_deadline(deadline) {
        let raised = state.with_deadline(oldest);
        match entry.state.try_reset(state, raised) {
            Ok(()) => return raised,
            Err(now) => state = now,
        }
    }
    state
}

/// Step R5. Makes `next_visit` describe the reference just filed, unless it describes an
/// earlier one.
fn set_next_visit(next_visit: &AtomicNextVisit, place: Place, swept: Tick) {
    let Place::Slot { at, .. } = place else {
        return;
    };
    let mut seen = next_visit.load();
    while !in_time(seen, at, swept) {
        match next_visit.compare_exchange(seen, at) {
            Ok(()) => return,
            Err(now) => seen = now,
        }
    }
}

/// Checks if a timer whose state was exchanged while the flag was clear needs a reference. Returns
/// the part in which the caller files it, or `None` if an old reference is visited in time.
#[inline]
fn refiler_for<T>(entry: &Entry<T>, deadline: Tick, progress: &Progress) -> Option<Refiler> {
    if !in_time(entry.next_visit.load(), deadline, progress.swept()) {
        return Some(Refiler::Owner);
    }
    // A resetter may just have lowered `next_visit` without having woken the sweeper yet. Its flag
    // is then still set, and the Acquire of `next_visit` shows it.
    entry.state.load().is_refiling().then_some(Refiler::Helper)
}

/// A timer, and the deadline that an operation has set for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) id: TimerId,
    pub(super) deadline: Tick,
}

/// The part of a thread in refiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refiler {
    /// It has set the refiling flag, and so it alone may make `next_visit` describe a reference.
    Owner,
    /// Another thread has set the flag. This one files a reference and leaves `next_visit` alone.
    Helper,
}
