//! Insert: claims a vacant entry, writes the value, arms the timer, and ensures that a reference to
//! the entry is visited in time. The steps A1 to A5 and their races are in
//! [`protocol`](super::protocol).
//!
//! ```text
//! insert                               the usual case, or else insert_slow, the general case
//! ├── arm                              A1, A2: an old reference is visited in time
//! │   ├── arm_and_file                 A3, F1 to F3: none is
//! │   │   ├── file_slow                the slot needs a block, or another thread changes it
//! │   │   ├── file_overdue             the sweep has reached the deadline
//! │   │   └── finish_slow              the sweeper does not expect the reference
//! │   │       └── finish_filing        F1 to F7 in any case; the two above call it as well
//! │   ├── arm_slow                     another thread changes the entry
//! │   └── ensure_insert_visited        the old reference may have been visited meanwhile
//! │       └── finish                   finish_filing and arm_slow end in it as well
//! └── withdraw                         A5: the timer cannot stay armed
//! ```
//!
//! **The exception to I2.** `arm_and_file` writes `next_visit` and arms the timer before it files
//! the reference, so that for a moment `next_visit` promises a visit that no reference makes. No
//! other thread has the id of the timer then, so nothing relies on that promise. Only the sweeper
//! can end the timer, after the tick of `next_visit`, or a drain, which clears `next_visit`.
//!
//! The usual case ends in calls of functions that are not inlined, so that it needs few registers.
//! They return an id alone, of a timer that is armed or that has to be withdrawn.

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::refile::{Refiler, Target};
use super::still_pending;
use crate::error::{InsertError, Refusal};
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::{Admission, Engine, OutOfRange};
use crate::wheel::hierarchy::block::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::id::TimerId;
use crate::wheel::memory::{Guard, pin};
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::shard::{Filed, Shard, has_passed, in_time, visit_tick};
use crate::wheel::slab::Claimed;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::page_table::NoEntry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;

/// The id of a timer that was armed, and whether it may stay so.
type Armed = Result<TimerId, Untenable>;

/// A timer that was armed and cannot stay so, because the wheel was closed meanwhile or because
/// there is no memory for its reference.
struct Untenable(TimerId);

impl<T> Engine<T> {
    /// Arms a timer in the usual case: `deadline` is known at once, the wheel is open and not full,
    /// and the thread's magazines have an entry. Otherwise calls `slow`.
    #[inline(always)]
    pub(crate) fn insert(
        &self,
        value: T,
        deadline: impl FnOnce(&ThreadState) -> Option<Tick>,
        slow: impl FnOnce(T) -> Result<TimerId, InsertError<T>>,
    ) -> Result<TimerId, InsertError<T>> {
        let guard = pin();
        if let Some(thread) = self.threads.known()
            && let Some(deadline) = deadline(thread)
            && !self.is_closed()
            && let Some(shard) = self.shards.get(thread.home)
            && self.take_room(thread.home, Admission::IfRoom)
        {
            if let Some(claimed) = shard.slab.claim_from(&thread.vacant, &guard) {
                thread.counters.add_own(ThreadCount::Inserted, 1);
                let armed = self.arm(thread, shard, claimed, value, deadline);
                return armed.or_else(|armed| self.withdraw(armed));
            }
            self.make_room(thread.home, 1);
        }
        slow(value)
    }

    /// The general case of an insert.
    pub(crate) fn insert_slow(
        &self,
        thread: &ThreadState,
        value: T,
        deadline: Result<Tick, OutOfRange>,
        admission: Admission,
    ) -> Result<TimerId, InsertError<T>> {
        let guard = pin();
        let claimed = match deadline {
            Ok(deadline) => self.claim(thread, admission, &guard).map(|entry| (entry, deadline)),
            Err(_) if self.is_closed() => Err(Refusal::Closed),
            Err(why) => Err(Refusal::BeyondRange(self.beyond_range(why))),
        };
        match claimed {
            Ok(((shard, claimed), deadline)) => {
                thread.counters.add(ThreadCount::Inserted, 1);
                let armed = self.arm(thread, shard, claimed, value, deadline);
                armed.or_else(|armed| self.withdraw(armed))
            }
            Err(reason) => Err(InsertError { reason, value }),
        }
    }

    /// Step A1: claims an entry of the thread's home shard or, if that is full, of the next shard
    /// that has room.
    fn claim<'g>(
        &'g self,
        thread: &ThreadState,
        admission: Admission,
        guard: &'g Guard,
    ) -> Result<(&'g Shard<T>, Claimed<'g, Entry<T>>), Refusal> {
        let (home, mut memory) = (ThreadId::current().home(self.shards.len()), true);
        for number in (home..self.shards.len()).chain(0..home) {
            if self.is_closed() {
                return Err(Refusal::Closed);
            }
            if !self.take_room(number, admission) {
                continue;
            }
            let slab = &self.shards[number].slab;
            let claimed = if number == thread.home {
                thread.set_keeps_entries(true);
                let from_magazine = slab.claim_from(&thread.vacant, guard);
                from_magazine.map_or_else(|| slab.load_and_claim(&thread.vacant, guard), Ok)
            } else {
                slab.claim(guard)
            };
            match claimed {
                Ok(claimed) => return Ok((&self.shards[number], claimed)),
                Err(why) => memory &= why != NoEntry::OutOfMemory,
            }
            self.make_room(number, 1);
        }
        if !memory {
            return Err(Refusal::OutOfMemory);
        }
        Err(Refusal::AtCapacity { capacity: self.capacity().unwrap_or_else(|| self.most()) })
    }

    /// Completes A1 by writing the value, and does A2: arms a timer in a claimed entry, by one
    /// exchange if an old reference is visited in time.
    #[inline(always)]
    fn arm(
        &self,
        thread: &ThreadState,
        shard: &Shard<T>,
        Claimed { entry, index, vacant }: Claimed<'_, Entry<T>>,
        value: T,
        deadline: Tick,
    ) -> Armed {
        // SAFETY: the thread that has claimed an entry holds it exclusively until it arms the timer
        // below, or in one of the functions that are called here (I3).
        unsafe { entry.put(value) };
        let id = TimerId::new(shard.number, vacant.generation(), index);
        let (next_visit, target) = (entry.next_visit.load(), Target { id, deadline });
        if vacant.is_refiling() {
            return self.arm_slow(thread, entry, target);
        }
        if !in_time(next_visit, deadline, self.progress.swept()) {
            return self.arm_and_file(thread, shard, entry, target);
        }
        let armed = EntryState::of(id, deadline);
        if entry.state.try_arm_unflagged(vacant, armed).is_err() {
            return self.arm_slow(thread, entry, target);
        }
        match still_pending(entry, armed, next_visit, &self.progress) && !self.is_closed() {
            true => Ok(id),
            false => self.ensure_insert_visited(thread, entry, target),
        }
    }

    /// Does A3 and A4: arms a timer by a store, and files a reference to its entry.
    #[inline(never)]
    fn arm_and_file(
        &self,
        thread: &ThreadState,
        shard: &Shard<T>,
        entry: &Entry<T>,
        target: Target,
    ) -> Armed {
        let swept = self.progress.swept();
        let place = shard.hierarchy.place(target.deadline, swept);
        // Overwrite in any case. A store does not pass the sweeper's last `next_visit` on to
        // resetters, so a stale one must not survive.
        entry.next_visit.store(visit_tick(place, swept));
        entry.state.arm(target.id, target.deadline);
        let Place::Slot { slot, at } = place else { return self.file_overdue(target) };
        if !shard.hierarchy.try_file(EntryRef::new(target.id.index()), slot) {
            return self.file_slow(target, slot, at);
        }
        full_fence();
        if shard.next_scan.is_after(at) || self.is_closed() {
            return self.finish_slow(target, slot, at);
        }
        thread.counters.add(ThreadCount::Filed, 1);
        Ok(target.id)
    }

    /// Files the reference to an armed timer in a slot that needs a block, or that another thread
    /// changes.
    #[cold]
    #[inline(never)]
    fn file_slow(&self, target: Target, slot: SlotIndex, at: Tick) -> Armed {
        self.finish_filing(target, Place::Slot { slot, at }, None)
    }

    /// Goes on after the reference to an armed timer was filed in a slot that the sweeper may not
    /// expect, or after the wheel was closed.
    #[cold]
    #[inline(never)]
    fn finish_slow(&self, target: Target, slot: SlotIndex, at: Tick) -> Armed {
        let filed = Filed { references: 1, blocks: 0 };
        self.finish_filing(target, Place::Slot { slot, at }, Some(filed))
    }

    /// Files the reference to an armed timer whose deadline the sweep has reached.
    #[cold]
    #[inline(never)]
    fn file_overdue(&self, target: Target) -> Armed {
        self.finish_filing(target, Place::Overdue, None)
    }

    /// The general case of filing the reference to an armed timer, unless the caller has `filed`
    /// it.
    fn finish_filing(&self, target: Target, place: Place, filed: Option<Filed>) -> Armed {
        let (guard, thread) = (pin(), self.threads.current());
        let shard = self.shard(target.id.shard());
        let Some(entry) = shard.slab.entry(target.id.index(), &guard) else {
            // A drain has ended the timer, and its page was removed since.
            self.count_filed(thread, filed.unwrap_or(Filed::NOTHING));
            return Ok(target.id);
        };
        let Some(filed) = filed.or_else(|| shard.try_file(target.id.index(), place)) else {
            return Err(Untenable(target.id));
        };
        full_fence();
        let more = match shard.is_expected(place) {
            true => Filed::NOTHING,
            false => shard.report_filed(entry, target, place, &self.progress),
        };
        self.finish(thread, target.id, filed.and(more))
    }

    /// Arms a timer by an exchange, whatever the old references are, because a resetter holds the
    /// flag or has just cleared it.
    #[cold]
    #[inline(never)]
    fn arm_slow(&self, thread: &ThreadState, entry: &Entry<T>, target: Target) -> Armed {
        let shard = self.shard(target.id.shard());
        let filed = match exchange_armed(entry, target.deadline).is_refiling() {
            true => shard.refile_as(Refiler::Helper, entry, target, &self.progress),
            false => shard.ensure_reference(entry, target, &self.progress),
        };
        self.finish(thread, target.id, filed)
    }

    /// Ensures a visit of a timer that is armed, because its old reference may not be visited in
    /// time after all, or the wheel was closed. The timer may have ended meanwhile, and its entry
    /// be in use again.
    #[cold]
    #[inline(never)]
    fn ensure_insert_visited(
        &self,
        thread: &ThreadState,
        entry: &Entry<T>,
        target: Target,
    ) -> Armed {
        let filed = self.shard(target.id.shard()).ensure_reference(entry, target, &self.progress);
        self.finish(thread, target.id, filed)
    }

    /// Counts what was filed, and leaves the timer armed, unless the wheel has been closed
    /// meanwhile.
    fn finish(&self, thread: &ThreadState, id: TimerId, filed: Filed) -> Armed {
        self.count_filed(thread, filed);
        // Ordered after the arming by its fence or exchange. See "Insert against close" in
        // `engine`.
        if self.is_closed() { Err(Untenable(id)) } else { Ok(id) }
    }

    /// Step A5: ends a timer that cannot stay armed and returns its value, unless another thread
    /// has ended it.
    #[cold]
    #[inline(never)]
    fn withdraw(&self, Untenable(id): Untenable) -> Result<TimerId, InsertError<T>> {
        let (guard, shard) = (pin(), self.shard(id.shard()));
        let entry = shard.slab.entry(id.index(), &guard);
        // It may not have filed the reference that `next_visit` describes.
        let ended = entry.and_then(|entry| shard.end(entry, id, || entry.next_visit.clear()));
        let Some((value, _)) = ended else { return Ok(id) };
        self.make_room(id.shard(), 1);
        self.threads.current().counters.add(ThreadCount::Returned, 1);
        let reason = if self.is_closed() { Refusal::Closed } else { Refusal::OutOfMemory };
        Err(InsertError { reason, value })
    }
}

impl<T> Shard<T> {
    /// Does F4 to F7: ensures that the sweeper visits a reference that it does not expect in time,
    /// and wakes up for it. Returns what was filed for that.
    fn report_filed(
        &self,
        entry: &Entry<T>,
        target: Target,
        place: Place,
        progress: &Progress,
    ) -> Filed {
        let wanted = self.report(progress);
        let swept = progress.swept();
        if has_passed(place, target.deadline, swept) {
            return self.refile(entry, target, progress);
        }
        progress.wakeup().wake_before(visit_tick(place, swept), wanted);
        Filed::NOTHING
    }
}

/// Arms by an exchange, which keeps the refiling flag of a resetter that was held up. The caller
/// has claimed the entry and not armed it.
#[inline]
fn exchange_armed<T>(entry: &Entry<T>, deadline: Tick) -> EntryState {
    let mut vacant = entry.state.load();
    loop {
        match entry.state.try_arm(vacant, deadline) {
            Ok(armed) => return armed,
            // The resetter has cleared its flag.
            Err(now) => vacant = now,
        }
    }
}
