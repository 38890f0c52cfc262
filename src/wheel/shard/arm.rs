//! Arming: what an insert does with the entry that it has claimed, by a reference that is visited
//! in time or with a new one. The protocol and its races are in [`protocol`](super::protocol).
//!
//! What is common comes first and calls nothing; what is left of it, where another thread was
//! faster or the sweeper has come, goes on by the id alone: once the timer is armed, others may end
//! it.

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::{Aim, Arm, Filed, Refiler, Shard, at, has_passed, in_time, still_waits};
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::slab::Claimed;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::tick::Tick;

/// What came of arming a timer and filing its first reference.
#[derive(Debug)]
#[must_use]
pub(crate) enum First<F> {
    /// It is armed, and will be visited in time.
    Done,
    /// It is not armed: a block has to be made, or its deadline has passed.
    NotArmed(F),
    /// It is armed; its reference is still to be filed there.
    NotFiled(SlotIndex, Tick),
    /// Its reference is filed there, where the sweeper may have been already, or rests for too
    /// long.
    Recheck(SlotIndex, Tick),
}

/// A claimed entry with the value of a timer, which is to be armed: its id.
#[derive(Debug)]
pub(crate) struct Prepared<'g, T> {
    entry: &'g Entry<T>,
    id: TimerId,
}

impl<T> Prepared<'_, T> {
    #[inline]
    pub(crate) fn id(&self) -> TimerId {
        self.id
    }
}

impl<T> Shard<T> {
    /// Puts a timer into an entry that the caller has claimed, and arms it in the common case: a
    /// reference to the entry is visited in time, and nobody is refiling.
    #[inline(always)]
    pub(crate) fn arm_by_reference<'g>(
        &self,
        Claimed { entry, index, vacant }: Claimed<'g, Entry<T>>,
        value: T,
        deadline: Tick,
        progress: &Progress,
    ) -> (TimerId, Arm<Prepared<'g, T>>) {
        let id = TimerId::new(self.number, vacant.generation(), index);
        // SAFETY: whoever has claimed the entry holds it alone, until it is armed: below, or by
        // what becomes of `Prepared`.
        unsafe { entry.put(value) };
        let (prepared, next_visit) = (Prepared { entry, id }, entry.next_visit.load());
        let armed = EntryState::of(id, deadline);
        let arm = if vacant.is_refiling() {
            Arm::Raced(prepared)
        } else if !in_time(next_visit, deadline, progress.swept()) {
            Arm::NoReference(prepared)
        } else if entry.state.try_arm_unflagged(vacant, armed).is_err() {
            Arm::Raced(prepared)
        } else if !still_waits(entry, armed, next_visit, progress) {
            Arm::NotInTime
        } else {
            Arm::Done
        };
        (id, arm)
    }

    /// Arms a timer of whose entry no reference is visited in time, and files one, in the common
    /// case: the slot has room, nobody is faster, and the sweeper comes in time by itself.
    #[inline(always)]
    pub(crate) fn arm_and_file<'g>(
        &self,
        prepared: Prepared<'g, T>,
        deadline: Tick,
        progress: &Progress,
    ) -> First<Prepared<'g, T>> {
        let Some((slot, at)) = self.hierarchy.slot_soon(deadline, progress.swept()) else {
            return First::NotArmed(prepared);
        };
        let Prepared { entry, id } = prepared;
        let arm = || {
            entry.next_visit.store(at);
            entry.state.arm(id, deadline);
        };
        match self.hierarchy.file_soon(EntryRef::new(id.index()), slot, arm) {
            None => return First::NotArmed(prepared),
            Some(false) => return First::NotFiled(slot, at),
            Some(true) => full_fence(),
        }
        if at <= progress.swept() || progress.wakeup().is_after(at) {
            return First::Recheck(slot, at);
        }
        First::Done
    }

    /// As [`arm_and_file`](Self::arm_and_file), in every case. `None`: there is no memory for the
    /// reference; the timer is armed, and is to be [withdrawn](Self::withdraw).
    pub(crate) fn arm_and_file_any(
        &self,
        Prepared { entry, id }: Prepared<'_, T>,
        deadline: Tick,
        progress: &Progress,
    ) -> Option<Filed> {
        let swept = progress.swept();
        let place = self.hierarchy.place(deadline, swept);
        // Also when it tells of nothing: a store does not show later resetters what the sweeper
        // has written, unless it is overwritten here.
        entry.next_visit.store(at(place, swept));
        entry.state.arm(id, deadline);
        let filed = self.file(id.index(), place)?;
        full_fence();
        Some(filed.and(self.recheck(entry, Aim { id, deadline }, place, progress)))
    }

    /// Goes on where [`arm_and_file`](Self::arm_and_file) has armed a timer and not filed its
    /// reference. `None`: as of [`arm_and_file_any`](Self::arm_and_file_any).
    pub(crate) fn file_first(
        &self,
        id: TimerId,
        deadline: Tick,
        (slot, at): (SlotIndex, Tick),
        progress: &Progress,
        guard: &Guard,
    ) -> Option<Filed> {
        let filed = self.file(id.index(), Place::Slot { slot, at })?;
        full_fence();
        Some(filed.and(self.recheck_at(id, deadline, (slot, at), progress, guard)))
    }

    /// Goes on where [`arm_and_file`](Self::arm_and_file) has filed the reference to a timer, and
    /// the sweeper may not come in time.
    pub(crate) fn recheck_at(
        &self,
        id: TimerId,
        deadline: Tick,
        (slot, at): (SlotIndex, Tick),
        progress: &Progress,
        guard: &Guard,
    ) -> Filed {
        let look =
            |entry| self.recheck(entry, Aim { id, deadline }, Place::Slot { slot, at }, progress);
        self.slab.entry(id.index(), guard).map_or(Filed::NOTHING, look)
    }

    /// The re-check of an insert that has filed a reference, after its fence: whether the
    /// sweeper comes there in time, and by itself.
    fn recheck(&self, entry: &Entry<T>, aim: Aim, place: Place, progress: &Progress) -> Filed {
        let swept = progress.swept();
        if has_passed(place, aim.deadline, swept) {
            return self.refile(entry, aim, progress);
        }
        progress.wakeup().check(at(place, swept));
        Filed::NOTHING
    }

    /// Arms a timer by an exchange, whatever reference its entry has.
    pub(crate) fn arm_any(
        &self,
        Prepared { entry, id }: Prepared<'_, T>,
        deadline: Tick,
        progress: &Progress,
    ) -> Filed {
        let aim = Aim { id, deadline };
        match arm(entry, deadline).is_refiling() {
            true => self.refile_as(Refiler::Helper, entry, aim, progress),
            false => self.rely(entry, aim, progress),
        }
    }
}

/// Arms by an exchange, which keeps the refiling flag of a resetter that was held up.
#[inline]
fn arm<T>(entry: &Entry<T>, deadline: Tick) -> EntryState {
    let mut vacant = entry.state.load();
    loop {
        match entry.state.try_arm(vacant, deadline) {
            Ok(armed) => return armed,
            // That resetter has cleared it.
            Err(now) => vacant = now,
        }
    }
}
