//! Insert: claim a vacant entry, write the value, arm the timer, and see that a reference to it is
//! visited in time. The steps and their races are in [`protocol`](super::protocol).
//!
//! The fast path is [`Engine::insert`]. It serves an open wheel without a bound, a thread with an
//! entry in its magazines, a near deadline, and a reference that is visited in time. Everything
//! else is left to functions that are not inlined, so that the fast path needs few registers.

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::refile::{Aim, Refiler};
use super::{ArmOutcome, Call, hand_back, still_pending};
use crate::error::{InsertError, Refusal};
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::progress::upkeep_flag::UpkeepFlag;
use crate::wheel::shard::{Filed, Shard, at, has_passed, in_time};
use crate::wheel::slab::Claimed;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::page_table::NoEntry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::time::Duration;

impl<T> Engine<T> {
    /// Arms a timer that is due `delay` from now.
    #[inline]
    pub(crate) fn insert_after(
        &self,
        call: Call<'_>,
        value: T,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        match self.in_window(self.timeline.fast_tick_after(delay, now)) {
            Some(deadline) => self
                .insert(call, value, deadline)
                .or_else(|value| self.insert_after_slow(call, value, delay, now)),
            None => self.insert_after_slow(call, value, delay, now),
        }
    }

    /// As [`insert_after`](Self::insert_after), in every case.
    #[inline(never)]
    fn insert_after_slow(
        &self,
        call: Call<'_>,
        value: T,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        match self.tick_after(delay, now) {
            Ok(deadline) => self.insert_slow(call, value, deadline),
            Err(why) => Err(self.refuse(value, why)),
        }
    }

    /// Arms a timer that is due at a tick, or says why it cannot be.
    pub(crate) fn insert_at(
        &self,
        call: Call<'_>,
        value: T,
        deadline: Result<Tick, OutOfRange>,
    ) -> Result<TimerId, InsertError<T>> {
        match deadline {
            Ok(deadline) => self
                .insert(call, value, deadline)
                .or_else(|value| self.insert_slow(call, value, deadline)),
            Err(why) => Err(self.refuse(value, why)),
        }
    }

    /// The error for a timer whose deadline is out of range. A wheel that is closed says so,
    /// whatever the deadline.
    #[cold]
    pub(super) fn refuse(&self, value: T, why: OutOfRange) -> InsertError<T> {
        let reason = match self.is_closed() {
            true => Refusal::Closed,
            false => Refusal::BeyondRange(self.beyond_range(why)),
        };
        InsertError { reason, value }
    }

    /// Arms a timer in an entry that the caller has in its magazines, or loads into them. The value
    /// comes back if no entry is available, or if the fast path does not apply.
    #[inline(always)]
    pub(crate) fn insert(&self, call: Call<'_>, value: T, deadline: Tick) -> Result<TimerId, T> {
        if self.is_closed() {
            return hand_back(value);
        }
        let Some(shard) = self.shards.get(call.thread.fast_home()) else {
            return hand_back(value);
        };
        match shard.slab.claim_from(&call.thread.vacant, call.guard) {
            Some(claimed) => self.arm(call, shard, claimed, value, deadline),
            None => self.insert_loading(call, shard, value, deadline),
        }
    }

    /// As [`insert`](Self::insert), where entries have to be loaded
    /// first.
    #[inline(never)]
    fn insert_loading(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        match shard.slab.load_and_claim(&call.thread.vacant, call.guard) {
            Ok(claimed) => self.arm(call, shard, claimed, value, deadline),
            Err(_) => hand_back(value),
        }
    }

    /// Arms a timer in the caller's shard or, where that is full, in the next that is not.
    pub(crate) fn insert_slow(
        &self,
        call: Call<'_>,
        mut value: T,
        deadline: Tick,
    ) -> Result<TimerId, InsertError<T>> {
        let (home, mut memory) = (ThreadId::current().home(self.shards.len()), true);
        for number in (home..self.shards.len()).chain(0..home) {
            if self.is_closed() {
                break;
            }
            match self.insert_in(number, call, value, deadline) {
                Ok(id) => return Ok(id),
                Err((refused, why)) => {
                    value = refused;
                    memory &= why != NoEntry::OutOfMemory;
                }
            }
        }
        if self.is_closed() {
            return Err(InsertError { reason: Refusal::Closed, value });
        }
        if !memory {
            return Err(InsertError { reason: Refusal::OutOfMemory, value });
        }
        let capacity = self.capacity.as_ref().map_or_else(|| self.most(), |c| c.total);
        Err(InsertError { reason: Refusal::AtCapacity { capacity }, value })
    }

    /// Inserts into one shard, if there is room in it and the wheel stays open.
    fn insert_in(
        &self,
        number: usize,
        call: Call<'_>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, (T, NoEntry)> {
        if !self.take_room(number) {
            return Err((value, NoEntry::UsedUp));
        }
        self.insert_in_room(number, call, value, deadline)
    }

    /// Inserts into one shard, in which the caller has taken a place.
    pub(super) fn insert_in_room(
        &self,
        number: usize,
        call: Call<'_>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, (T, NoEntry)> {
        let inserted = match self.claim_entry(number, call) {
            // What is not armed then, in a wheel that is open, has found no memory for a reference.
            Ok(claimed) => self
                .arm_slow(call, &self.shards[number], claimed, value, deadline)
                .map_err(|value| (value, NoEntry::OutOfMemory)),
            Err(why) => Err((value, why)),
        };
        inserted.inspect_err(|_| self.make_room(number, 1))
    }

    /// A vacant entry of a shard: out of the caller's magazines, which is prepared for that, if it
    /// is at home there.
    fn claim_entry<'g>(
        &'g self,
        number: usize,
        call: Call<'g>,
    ) -> Result<Claimed<'g, Entry<T>>, NoEntry> {
        let (shard, thread) = (&self.shards[number], call.thread);
        if number != thread.home {
            return shard.slab.claim(call.guard);
        }
        thread.keep(true);
        let from_magazine = shard.slab.claim_from(&thread.vacant, call.guard);
        from_magazine.map_or_else(|| shard.slab.load_and_claim(&thread.vacant, call.guard), Ok)
    }

    /// Arms a timer in an entry that the caller had in its magazines. The value comes back if the
    /// wheel was closed meanwhile or there is no memory for a reference, unless another thread has
    /// taken it.
    #[inline(always)]
    fn arm(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        claimed: Claimed<'_, Entry<T>>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        call.thread.counters.add_own(ThreadCount::Inserted, 1);
        let armed = shard.try_arm_by_old_reference(claimed, value, deadline, &self.progress);
        let file = |prepared| self.arm_and_file(call, shard, prepared, deadline);
        self.finish_insert(call, shard, deadline, armed, file)
    }

    /// As [`arm`](Self::arm), by any caller, in any entry.
    fn arm_slow(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        claimed: Claimed<'_, Entry<T>>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        call.thread.counters.add(ThreadCount::Inserted, 1);
        let armed = shard.try_arm_by_old_reference(claimed, value, deadline, &self.progress);
        let file = |prepared| self.arm_and_file_slow(call, shard, prepared, deadline);
        self.finish_insert(call, shard, deadline, armed, file)
    }

    /// What is left to do when a timer was armed by a reference that its entry has, or not; `file`
    /// arms it with a reference of its own.
    #[inline(always)]
    fn finish_insert<'g>(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        deadline: Tick,
        (id, arm): (TimerId, ArmOutcome<Prepared<'g, T>>),
        file: impl FnOnce(Prepared<'g, T>) -> Result<TimerId, T>,
    ) -> Result<TimerId, T> {
        match arm {
            ArmOutcome::Done => self.accept(call, id),
            ArmOutcome::NotInTime => self.ensure_armed(call, id, deadline),
            ArmOutcome::MustFile(prepared) => file(prepared),
            ArmOutcome::Raced(prepared) => self.arm_raced(call, shard, prepared, deadline),
        }
    }

    /// As [`arm`](Self::arm), in the next common case: a reference is filed.
    #[inline(never)]
    fn arm_and_file(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let id = prepared.id();
        match shard.try_arm_and_file(prepared, deadline, &self.progress) {
            FileOutcome::Done => {}
            FileOutcome::NotArmed(prepared) => {
                return self.arm_and_file_slow(call, shard, prepared, deadline);
            }
            FileOutcome::NotFiled(slot, at) => {
                return self.file_slow(call, id, deadline, (slot, at));
            }
            FileOutcome::Recheck(slot, at) => {
                return self.recheck_slow(call, id, deadline, (slot, at));
            }
        }
        let filed = call.thread.counters.add_own(ThreadCount::Filed, 1);
        if self.is_closed() || UpkeepFlag::is_time_to_check(filed, 1) {
            return self.accept_slow(call, id, filed);
        }
        Ok(id)
    }

    /// As [`arm_and_file`](Self::arm_and_file), where a block has to be made, or the deadline has
    /// passed.
    #[inline(never)]
    fn arm_and_file_slow(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let id = prepared.id();
        match shard.arm_and_file_slow(prepared, deadline, &self.progress) {
            Some(filed) => self.accept_filed(call, id, filed),
            None => self.withdraw(call, id),
        }
    }

    /// As [`arm_and_file`](Self::arm_and_file), from where another thread was faster to file.
    #[cold]
    #[inline(never)]
    fn file_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        there: (SlotIndex, Tick),
    ) -> Result<TimerId, T> {
        let shard = self.shard(id.shard());
        match shard.file_armed(id, deadline, there, &self.progress, call.guard) {
            Some(filed) => self.accept_filed(call, id, filed),
            None => self.withdraw(call, id),
        }
    }

    /// As [`arm_and_file`](Self::arm_and_file), from the re-check on.
    #[cold]
    #[inline(never)]
    fn recheck_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        there: (SlotIndex, Tick),
    ) -> Result<TimerId, T> {
        let shard = self.shard(id.shard());
        let more = shard.recheck_at(id, deadline, there, &self.progress, call.guard);
        self.accept_filed(call, id, Filed { references: 1, blocks: 0 }.and(more))
    }

    /// As [`arm`](Self::arm), where the reference that was relied on is not in time after all.
    #[cold]
    #[inline(never)]
    fn ensure_armed(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Result<TimerId, T> {
        self.ensure_ref(call, id, deadline);
        self.accept(call, id)
    }

    /// As [`accept`](Self::accept), when it may be time to look after the memory: by a count of
    /// references filed.
    #[cold]
    #[inline(never)]
    fn accept_slow(&self, call: Call<'_>, id: TimerId, filed: u64) -> Result<TimerId, T> {
        self.note_garbage(filed, 1);
        self.accept(call, id)
    }

    /// As [`arm`](Self::arm), in every other case.
    #[cold]
    #[inline(never)]
    fn arm_raced(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let id = prepared.id();
        let filed = shard.arm_by_exchange(prepared, deadline, &self.progress);
        self.accept_filed(call, id, filed)
    }

    /// As [`accept`](Self::accept), and counts what was filed.
    #[inline]
    fn accept_filed(&self, call: Call<'_>, id: TimerId, filed: Filed) -> Result<TimerId, T> {
        self.count_filed(call.thread, filed);
        self.accept(call, id)
    }

    /// Leaves a timer armed, unless the wheel has been closed meanwhile.
    #[inline]
    fn accept(&self, call: Call<'_>, id: TimerId) -> Result<TimerId, T> {
        // In order after the arming: insert against close.
        if self.is_closed() { self.withdraw(call, id) } else { Ok(id) }
    }

    /// Ends a timer that was armed while the wheel was closed, or whose reference finds no memory.
    #[cold]
    #[inline(never)]
    fn withdraw(&self, call: Call<'_>, id: TimerId) -> Result<TimerId, T> {
        let shard = self.shards.get(id.shard());
        match shard.and_then(|shard| shard.end_unreturned(id, call.guard)) {
            Some(value) => {
                call.thread.counters.add(ThreadCount::Returned, 1);
                Err(value)
            }
            None => Ok(id),
        }
    }
}

impl<T> Shard<T> {
    /// Puts a timer into an entry that the caller has claimed, and arms it in the common case: a
    /// reference to the entry is visited in time, and nobody is refiling.
    #[inline(always)]
    fn try_arm_by_old_reference<'g>(
        &self,
        Claimed { entry, index, vacant }: Claimed<'g, Entry<T>>,
        value: T,
        deadline: Tick,
        progress: &Progress,
    ) -> (TimerId, ArmOutcome<Prepared<'g, T>>) {
        let id = TimerId::new(self.number, vacant.generation(), index);
        // SAFETY: whoever has claimed the entry holds it alone, until it is armed: below, or by
        // what becomes of `Prepared`.
        unsafe { entry.put(value) };
        let (prepared, next_visit) = (Prepared { entry, id }, entry.next_visit.load());
        let armed = EntryState::of(id, deadline);
        let arm = if vacant.is_refiling() {
            ArmOutcome::Raced(prepared)
        } else if !in_time(next_visit, deadline, progress.swept()) {
            ArmOutcome::MustFile(prepared)
        } else if entry.state.try_arm_unflagged(vacant, armed).is_err() {
            ArmOutcome::Raced(prepared)
        } else if !still_pending(entry, armed, next_visit, progress) {
            ArmOutcome::NotInTime
        } else {
            ArmOutcome::Done
        };
        (id, arm)
    }

    /// Arms a timer whose entry has no reference that will be visited in time, and files one. This
    /// is the common case, in which the slot has room, no other thread is faster, and the sweeper
    /// need not be woken.
    #[inline(always)]
    fn try_arm_and_file<'g>(
        &self,
        prepared: Prepared<'g, T>,
        deadline: Tick,
        progress: &Progress,
    ) -> FileOutcome<Prepared<'g, T>> {
        let Some((slot, at)) = self.hierarchy.fast_slot(deadline, progress.swept()) else {
            return FileOutcome::NotArmed(prepared);
        };
        let Prepared { entry, id } = prepared;
        let arm = || {
            entry.next_visit.store(at);
            entry.state.arm(id, deadline);
        };
        match self.hierarchy.try_file(EntryRef::new(id.index()), slot, arm) {
            None => return FileOutcome::NotArmed(prepared),
            Some(false) => return FileOutcome::NotFiled(slot, at),
            Some(true) => full_fence(),
        }
        if at <= progress.swept() || progress.wakeup().is_after(at) {
            return FileOutcome::Recheck(slot, at);
        }
        FileOutcome::Done
    }

    /// As [`try_arm_and_file`](Self::try_arm_and_file), in every case. `None`: there is no memory
    /// for the reference; the timer is armed, and is to be [withdrawn](Self::end_unreturned).
    fn arm_and_file_slow(
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

    /// Goes on where [`try_arm_and_file`](Self::try_arm_and_file) has armed a timer and not filed
    /// its reference. `None`: as of [`arm_and_file_slow`](Self::arm_and_file_slow).
    fn file_armed(
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

    /// Goes on where [`try_arm_and_file`](Self::try_arm_and_file) has filed the reference to a
    /// timer, and the sweeper may not come in time.
    fn recheck_at(
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
    fn arm_by_exchange(
        &self,
        Prepared { entry, id }: Prepared<'_, T>,
        deadline: Tick,
        progress: &Progress,
    ) -> Filed {
        let aim = Aim { id, deadline };
        match exchange_armed(entry, deadline).is_refiling() {
            true => self.refile_as(Refiler::Helper, entry, aim, progress),
            false => self.rely(entry, aim, progress),
        }
    }
}

/// Arms by an exchange, which keeps the refiling flag of a resetter that was held up.
#[inline]
fn exchange_armed<T>(entry: &Entry<T>, deadline: Tick) -> EntryState {
    let mut vacant = entry.state.load();
    loop {
        match entry.state.try_arm(vacant, deadline) {
            Ok(armed) => return armed,
            // That resetter has cleared it.
            Err(now) => vacant = now,
        }
    }
}

/// A claimed entry with the value of a timer, which is to be armed: its id.
#[derive(Debug)]
struct Prepared<'g, T> {
    entry: &'g Entry<T>,
    id: TimerId,
}

impl<T> Prepared<'_, T> {
    #[inline]
    fn id(&self) -> TimerId {
        self.id
    }
}

/// The outcome of arming a timer and filing its first reference.
#[derive(Debug)]
#[must_use]
enum FileOutcome<F> {
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
