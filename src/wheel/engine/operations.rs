//! The operations that any thread may call: insert, cancel, reset.
//!
//! **The common case first.** [`insert_soon`](Engine::insert_soon), [`cancel`](Engine::cancel) and
//! [`reset_after`](Engine::reset_after) serve an open wheel without a bound, a thread with an entry
//! in its magazines, or room for one, a near deadline, a reference that is visited in time, and no
//! race. All else is left to functions that are not inlined, so they need few registers.

#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::{Call, Engine, OutOfRange, Reset};
use crate::error::{BeyondRange, InsertError, Refusal};
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::hierarchy::geometry::SlotIndex;
use crate::wheel::id::TimerId;
use crate::wheel::opaque::{hand_back, opaque};
use crate::wheel::progress::upkeep_flag::UpkeepFlag;
use crate::wheel::shard::arm::{First, Prepared};
use crate::wheel::shard::{Arm, Filed, Shard};
use crate::wheel::slab::Claimed;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::page_table::NoEntry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_id::ThreadId;
use crate::wheel::thread_state::ThreadState;
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
        match self.insert_soon(call, value, delay, now) {
            Ok(id) => Ok(id),
            Err(value) => self.insert_after_any(call, value, delay, now),
        }
    }

    /// As [`insert_after`](Self::insert_after), in every case.
    #[inline(never)]
    fn insert_after_any(
        &self,
        call: Call<'_>,
        value: T,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        match self.tick_after(delay, now) {
            Ok(deadline) => self.insert_in_any(call, value, deadline),
            Err(why) => Err(self.refuse(value, why)),
        }
    }

    /// As [`insert_after`](Self::insert_after), in the common case; in all others, the value comes
    /// back.
    #[inline(always)]
    pub(crate) fn insert_soon(
        &self,
        call: Call<'_>,
        value: T,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<TimerId, T> {
        match self.in_window(self.timeline.soon(delay, now)) {
            Some(deadline) => self.insert_from_magazine(call, value, deadline),
            None => Err(value),
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
                .insert_from_magazine(call, value, deadline)
                .or_else(|value| self.insert_in_any(call, value, deadline)),
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
    /// comes back if none is to be had, or the case is not so plain.
    #[inline(always)]
    pub(crate) fn insert_from_magazine(
        &self,
        call: Call<'_>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        if self.is_closed() {
            return hand_back(value);
        }
        let Some(shard) = self.shards.get(call.thread.fast_home()) else {
            return hand_back(value);
        };
        match shard.slab.claim_from(&call.thread.vacant, call.guard) {
            Some(claimed) => self.arm(call, shard, claimed, value, deadline),
            None => self.load_and_insert(call, shard, value, deadline),
        }
    }

    /// As [`insert_from_magazine`](Self::insert_from_magazine), where entries have to be loaded
    /// first.
    #[inline(never)]
    fn load_and_insert(
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
    pub(crate) fn insert_in_any(
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

    /// Ends a timer and returns its value.
    #[inline(always)]
    pub(crate) fn cancel(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        let Some((value, _)) = self.cancel_into_magazine(call, id) else {
            return self.cancel_any(call, id);
        };
        let cancelled = call.thread.counters.add_own(ThreadCount::Cancelled, 1);
        if UpkeepFlag::is_time_to_check(cancelled, 1) {
            return self.check_memory_with(value);
        }
        Some(value)
    }

    /// As [`cancel`](Self::cancel), when it is time to look after the memory.
    #[cold]
    #[inline(never)]
    fn check_memory_with(&self, value: T) -> Option<T> {
        self.check_memory();
        opaque(Some(value))
    }

    /// As [`cancel`](Self::cancel), in every case.
    #[inline(never)]
    fn cancel_any(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        self.cancel_in_any(call, id).map(|(value, _)| value)
    }

    /// As [`cancel`](Self::cancel), with the deadline that the timer had.
    pub(crate) fn take(&self, call: Call<'_>, id: TimerId) -> Option<(T, Tick)> {
        let (value, ended) = self.cancel_in_any(call, id)?;
        Some((value, ended.deadline(self.progress.swept())))
    }

    /// Ends a timer, in the common case: its entry goes into the caller's magazines.
    #[inline(always)]
    fn cancel_into_magazine(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        if id.shard() != call.thread.fast_home() {
            return None;
        }
        self.shards.get(id.shard())?.cancel_into(&call.thread.vacant, id, call.guard)
    }

    /// Ends a timer, wherever it is.
    fn cancel_in_any(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        let (number, thread) = (id.shard(), call.thread);
        let shard = self.shards.get(number)?;
        if thread.keeps(number) {
            // What could not go into the magazines because that was full does so now.
            shard.slab.unload(&thread.vacant, call.guard);
            if let Some(ended) = self.cancel_into_magazine(call, id) {
                self.count_cancelled(thread);
                return Some(ended);
            }
        }
        let ended = shard.cancel(id, call.guard)?;
        self.make_room(number, 1);
        self.count_cancelled(thread);
        Some(ended)
    }

    #[inline]
    fn count_cancelled(&self, thread: &ThreadState) {
        let cancelled = thread.counters.add(ThreadCount::Cancelled, 1);
        self.note_garbage(cancelled, 1);
    }

    /// Sets a timer's deadline to `delay` from now.
    #[inline(always)]
    pub(crate) fn reset_after(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> Reset {
        match self.in_window(self.timeline.soon(delay, now)) {
            Some(deadline) => self.reset(call, id, deadline),
            None => self.reset_after_any(call, id, delay, now),
        }
    }

    /// As [`reset_after`](Self::reset_after), for delays that are not plain.
    #[cold]
    #[inline(never)]
    fn reset_after_any(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> Reset {
        self.reset_at(call, id, self.tick_after(delay, now))
    }

    /// Sets a timer's deadline, if it is in range.
    pub(crate) fn reset_at(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Result<Tick, OutOfRange>,
    ) -> Reset {
        match deadline {
            Ok(deadline) => self.reset(call, id, deadline),
            // A timer that is not armed cannot be reset, whatever the deadline.
            Err(why) if self.contains(id, call.guard) => Reset::OutOfRange(why),
            Err(_) => Reset::NotArmed,
        }
    }

    /// What came of a reset, for the caller.
    #[inline(always)]
    pub(crate) fn result(&self, reset: Reset) -> Result<bool, BeyondRange> {
        match reset {
            Reset::Done => Ok(true),
            Reset::NotArmed => Ok(false),
            Reset::OutOfRange(why) => Err(self.beyond_range(why)),
        }
    }

    /// Sets a timer's deadline.
    #[inline(always)]
    fn reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Reset {
        self.reset_and(call, id, deadline, |counters| counters.add(ThreadCount::Reset, 1))
    }

    /// As [`reset`](Self::reset), where no other thread has the caller's id.
    #[inline(always)]
    pub(crate) fn reset_by_own(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Reset {
        self.reset_and(call, id, deadline, |counters| counters.add_own(ThreadCount::Reset, 1))
    }

    /// Sets a timer's deadline, and counts it.
    #[inline(always)]
    fn reset_and(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        count: impl FnOnce(&ThreadCounters) -> u64,
    ) -> Reset {
        let Some(shard) = self.shards.get(id.shard()) else {
            return self.reset_any(call, id, deadline);
        };
        match shard.push_back(id, deadline, &self.progress, call.guard) {
            Arm::Done => {
                count(&call.thread.counters);
                Reset::Done
            }
            Arm::NotInTime => self.see_to_reset(call, id, deadline),
            Arm::NoReference(()) | Arm::Raced(()) => self.reset_any(call, id, deadline),
        }
    }

    /// As [`reset`](Self::reset), in every case.
    #[inline(never)]
    fn reset_any(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Reset {
        let shard = self.shards.get(id.shard());
        let done = shard.and_then(|shard| shard.reset(id, deadline, &self.progress, call.guard));
        let Some(filed) = done else {
            return Reset::NotArmed;
        };
        call.thread.counters.add(ThreadCount::Reset, 1);
        self.count_filed(call.thread, filed);
        Reset::Done
    }

    /// As [`reset`](Self::reset), where the reference that was relied on is not in time after all.
    #[cold]
    #[inline(never)]
    fn see_to_reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Reset {
        self.see_to(call, id, deadline);
        call.thread.counters.add(ThreadCount::Reset, 1);
        opaque(Reset::Done)
    }

    /// Sees to a reference for a timer whose deadline was set by one that is not visited in time
    /// after all.
    fn see_to(&self, call: Call<'_>, id: TimerId, deadline: Tick) {
        if let Some(shard) = self.shards.get(id.shard()) {
            let filed = shard.see_to(id, deadline, &self.progress, call.guard);
            self.count_filed(call.thread, filed);
        }
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
        let inserted = match self.claim(number, call) {
            // What is not armed then, in a wheel that is open, has found no memory for a reference.
            Ok(claimed) => self
                .arm_claimed(call, &self.shards[number], claimed, value, deadline)
                .map_err(|value| (value, NoEntry::OutOfMemory)),
            Err(why) => Err((value, why)),
        };
        inserted.inspect_err(|_| self.make_room(number, 1))
    }

    /// A vacant entry of a shard: out of the caller's magazines, which is prepared for that, if it
    /// is at home there.
    fn claim<'g>(
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
    /// wheel was closed meanwhile or there is no memory for a reference, and nobody else has it.
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
        let armed = shard.arm_by_reference(claimed, value, deadline, &self.progress);
        let file = |prepared| self.arm_and_file(call, shard, prepared, deadline);
        self.see_through(call, shard, deadline, armed, file)
    }

    /// As [`arm`](Self::arm), by any caller, in any entry.
    fn arm_claimed(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        claimed: Claimed<'_, Entry<T>>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        call.thread.counters.add(ThreadCount::Inserted, 1);
        let armed = shard.arm_by_reference(claimed, value, deadline, &self.progress);
        let file = |prepared| self.arm_and_file_any(call, shard, prepared, deadline);
        self.see_through(call, shard, deadline, armed, file)
    }

    /// What is left to do when a timer was armed by a reference that its entry has, or not; `file`
    /// arms it with a reference of its own.
    #[inline(always)]
    fn see_through<'g>(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        deadline: Tick,
        (id, arm): (TimerId, Arm<Prepared<'g, T>>),
        file: impl FnOnce(Prepared<'g, T>) -> Result<TimerId, T>,
    ) -> Result<TimerId, T> {
        match arm {
            Arm::Done => self.accept(call, id),
            Arm::NotInTime => self.see_to_armed(call, id, deadline),
            Arm::NoReference(prepared) => file(prepared),
            Arm::Raced(prepared) => self.arm_any(call, shard, prepared, deadline),
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
        match shard.arm_and_file(prepared, deadline, &self.progress) {
            First::Done => {}
            First::NotArmed(prepared) => {
                return self.arm_and_file_any(call, shard, prepared, deadline);
            }
            First::NotFiled(slot, at) => return self.file_first(call, id, deadline, (slot, at)),
            First::Recheck(slot, at) => return self.recheck(call, id, deadline, (slot, at)),
        }
        let filed = call.thread.counters.add_own(ThreadCount::Filed, 1);
        if self.is_closed() || UpkeepFlag::is_time_to_check(filed, 1) {
            return self.accept_any(call, id, filed);
        }
        Ok(id)
    }

    /// As [`arm_and_file`](Self::arm_and_file), where a block has to be made, or the deadline has
    /// passed.
    #[inline(never)]
    fn arm_and_file_any(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let id = prepared.id();
        match shard.arm_and_file_any(prepared, deadline, &self.progress) {
            Some(filed) => self.accept_filed(call, id, filed),
            None => self.withdraw(call, id),
        }
    }

    /// As [`arm_and_file`](Self::arm_and_file), from where another thread was faster to file.
    #[cold]
    #[inline(never)]
    fn file_first(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        there: (SlotIndex, Tick),
    ) -> Result<TimerId, T> {
        let shard = self.shard(id.shard());
        match shard.file_first(id, deadline, there, &self.progress, call.guard) {
            Some(filed) => self.accept_filed(call, id, filed),
            None => self.withdraw(call, id),
        }
    }

    /// As [`arm_and_file`](Self::arm_and_file), from the re-check on.
    #[cold]
    #[inline(never)]
    fn recheck(
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
    fn see_to_armed(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Result<TimerId, T> {
        self.see_to(call, id, deadline);
        self.accept(call, id)
    }

    /// As [`accept`](Self::accept), when it may be time to look after the memory: by a count of
    /// references filed.
    #[cold]
    #[inline(never)]
    fn accept_any(&self, call: Call<'_>, id: TimerId, filed: u64) -> Result<TimerId, T> {
        self.note_garbage(filed, 1);
        self.accept(call, id)
    }

    /// As [`arm`](Self::arm), in every other case.
    #[cold]
    #[inline(never)]
    fn arm_any(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let id = prepared.id();
        let filed = shard.arm_any(prepared, deadline, &self.progress);
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
        match shard.and_then(|shard| shard.withdraw(id, call.guard)) {
            Some(value) => {
                call.thread.counters.add(ThreadCount::Returned, 1);
                Err(value)
            }
            None => Ok(id),
        }
    }

    /// Counts what an operation has filed.
    #[inline]
    fn count_filed(&self, thread: &ThreadState, Filed { references, blocks }: Filed) {
        if references == 0 {
            return;
        }
        let filed = thread.counters.add(ThreadCount::Filed, u64::from(references));
        self.note_garbage(filed, u64::from(references));
        if blocks > 0 {
            thread.counters.add(ThreadCount::Blocks, u64::from(blocks));
        }
    }
}
