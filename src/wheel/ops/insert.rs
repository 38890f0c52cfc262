//! Insert: claims a vacant entry, writes the value, arms the timer, and ensures that a reference to
//! the entry is visited in time. The steps and their races are in [`protocol`](super::protocol).
//!
//! ```text
//! Wheel::insert              by the thread's cached clock reading (`Inner::try_insert`)
//! Pinned::insert             by the clock reading of a batch (`try_insert_after`)
//! ├── insert                 the thread's magazine has a free entry, or is loaded with some
//! │   └── arm                an old reference is visited in time: one compare-exchange
//! │       └── arm_and_file   none is: a store, and a reference in the first block of the slot
//! │           └── arm_and_file_slow      the slot is empty, that block is full, or it is overdue
//! └── insert_slow            if that returns the value: any other entry, a full or closed wheel
//! ```
//!
//! The functions are in this order, each before those that it calls. The fast path is one function,
//! and everything else is left to functions that are not inlined, so that the fast path needs few
//! registers.

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::refile::{Aim, Refiler};
use super::{Call, hand_back, still_pending};
use crate::error::{InsertError, Refusal};
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::{Admission, Engine, OutOfRange};
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::hierarchy::slot::PushOutcome;
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::swept::full_fence;
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
    /// The fast path of an insert by delay, at a time that the caller has read. Returns the value
    /// in all other cases.
    #[inline(never)]
    pub(crate) fn try_insert_after(
        &self,
        value: T,
        delay: Duration,
        now: WheelInstant,
        guard: &Guard,
    ) -> Result<TimerId, T> {
        let Some(deadline) = self.usual_tick_after(delay, now) else {
            return hand_back(value);
        };
        match self.threads.known() {
            Some(thread) => self.insert(Call { thread, guard }, value, deadline),
            None => hand_back(value),
        }
    }

    /// The slow path of [`try_insert_after`](Self::try_insert_after), for any delay.
    #[inline(never)]
    pub(crate) fn insert_after_slow(
        &self,
        call: Call<'_>,
        value: T,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<TimerId, InsertError<T>> {
        match self.tick_of(self.timeline.after(delay, now), now) {
            Ok(deadline) => self.insert_slow(call, value, deadline, Admission::IfRoom),
            Err(why) => Err(self.refuse(value, why)),
        }
    }

    /// Arms a timer that is due at a tick, if it is in range.
    pub(crate) fn insert_at(
        &self,
        call: Call<'_>,
        value: T,
        deadline: Result<Tick, OutOfRange>,
    ) -> Result<TimerId, InsertError<T>> {
        match deadline {
            Ok(deadline) => self
                .insert(call, value, deadline)
                .or_else(|value| self.insert_slow(call, value, deadline, Admission::IfRoom)),
            Err(why) => Err(self.refuse(value, why)),
        }
    }

    /// Arms a timer in an entry from the thread's magazines, which are loaded if they are empty.
    /// Returns the value if no entry is available, or if the fast path does not apply.
    #[inline(always)]
    pub(crate) fn insert(&self, call: Call<'_>, value: T, deadline: Tick) -> Result<TimerId, T> {
        if self.is_closed() {
            return hand_back(value);
        }
        let home = call.thread.home;
        let Some(shard) = self.shards.get(home) else {
            return hand_back(value);
        };
        if !self.take_room(home, Admission::IfRoom) {
            return hand_back(value);
        }
        match shard.slab.claim_from(&call.thread.vacant, call.guard) {
            Some(claimed) => self.arm(call, shard, claimed, value, deadline),
            None => self.insert_loading(call, shard, value, deadline),
        }
    }

    /// The variant of [`insert`](Self::insert) for a thread whose magazines are empty.
    #[inline(never)]
    fn insert_loading(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        call.thread.keep(true);
        match shard.slab.load_and_claim(&call.thread.vacant, call.guard) {
            Ok(claimed) => self.arm(call, shard, claimed, value, deadline),
            Err(_) => {
                self.make_room(call.thread.home, 1);
                hand_back(value)
            }
        }
    }

    /// Arms a timer in an entry from the thread's magazines. Returns the value if the wheel was
    /// closed meanwhile or if there is no memory for a reference, unless another thread has ended
    /// the timer.
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
        let file = |prepared| self.arm_and_file(call, shard, prepared, deadline);
        self.arm_or_file(call, shard, prepare(shard, claimed, value), deadline, file)
    }

    /// Arms a timer if an old reference is visited in time. Otherwise calls `file`, which arms it
    /// and files a reference.
    #[inline(always)]
    fn arm_or_file<'g>(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        (prepared, vacant): (Prepared<'g, T>, EntryState),
        deadline: Tick,
        file: impl FnOnce(Prepared<'g, T>) -> Result<TimerId, T>,
    ) -> Result<TimerId, T> {
        let Prepared { entry, id } = prepared;
        let next_visit = entry.next_visit.load();
        if !vacant.is_refiling() {
            if !in_time(next_visit, deadline, self.progress.swept()) {
                return file(prepared);
            }
            let armed = EntryState::of(id, deadline);
            if entry.state.try_arm_unflagged(vacant, armed).is_ok() {
                return match still_pending(entry, armed, next_visit, &self.progress) {
                    true => self.accept(call, id),
                    false => self.ensure_armed(call, id, deadline),
                };
            }
        }
        self.arm_raced(call, shard, prepared, deadline)
    }

    /// Arms a timer and files a reference to its entry, if the first block of the slot has room.
    #[inline(never)]
    fn arm_and_file(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        prepared: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let Prepared { entry, id } = prepared;
        let Some((slot, at)) = shard.hierarchy.fast_slot(deadline, self.progress.swept()) else {
            return self.arm_and_file_slow(call, shard, prepared, deadline);
        };
        // `next_visit` is written and the timer armed before the reference is pushed, but only if
        // the block has room for it.
        let arm = || {
            entry.next_visit.store(at);
            entry.state.arm(id, deadline);
        };
        match shard.hierarchy.try_file(EntryRef::new(id.index()), slot, arm) {
            PushOutcome::Full => return self.arm_and_file_slow(call, shard, prepared, deadline),
            PushOutcome::Raced => return self.file_slow(call, id, deadline, (slot, at)),
            PushOutcome::Pushed => full_fence(),
        }
        if shard.next_scan.is_after(at) {
            return self.report_slow(call, id, deadline, (slot, at));
        }
        call.thread.counters.add_own(ThreadCount::Filed, 1);
        self.accept(call, id)
    }

    /// The slow path of [`arm_and_file`](Self::arm_and_file), for any thread, any block and any
    /// deadline.
    #[inline(never)]
    fn arm_and_file_slow(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        Prepared { entry, id }: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let swept = self.progress.swept();
        let place = shard.hierarchy.place(deadline, swept);
        // Written even if there is no reference to describe. Arming by a store does not publish
        // what the sweeper has last written here to later resetters, so it must be overwritten.
        entry.next_visit.store(at(place, swept));
        entry.state.arm(id, deadline);
        self.file_armed(call, shard, Aim { id, deadline }, place)
    }

    /// The slow path of [`arm_and_file`](Self::arm_and_file) after another thread, or the sweeper,
    /// has changed the slot's head. The timer is armed.
    #[cold]
    #[inline(never)]
    fn file_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        (slot, at): (SlotIndex, Tick),
    ) -> Result<TimerId, T> {
        let shard = self.shard(id.shard());
        self.file_armed(call, shard, Aim { id, deadline }, Place::Slot { slot, at })
    }

    /// Files the reference to an armed timer.
    #[inline(always)]
    fn file_armed(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        aim: Aim,
        place: Place,
    ) -> Result<TimerId, T> {
        let Some(filed) = shard.try_file(aim.id.index(), place) else {
            return self.withdraw(call, aim.id);
        };
        full_fence();
        match shard.is_expected(place) {
            true => self.accept_filed(call, aim.id, filed),
            false => self.report(call, shard, aim, place, filed),
        }
    }

    /// The slow path of [`arm_and_file`](Self::arm_and_file) after the reference is filed, if the
    /// sweeper does not expect it.
    #[cold]
    #[inline(never)]
    fn report_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        (slot, at): (SlotIndex, Tick),
    ) -> Result<TimerId, T> {
        let (shard, filed) = (self.shard(id.shard()), Filed { references: 1, blocks: 0 });
        self.report(call, shard, Aim { id, deadline }, Place::Slot { slot, at }, filed)
    }

    /// Ensures that the sweeper visits a reference in time and wakes up for it, if it does not
    /// expect it.
    fn report(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        aim: Aim,
        place: Place,
        mut filed: Filed,
    ) -> Result<TimerId, T> {
        let wanted = shard.report(&self.progress);
        let swept = self.progress.swept();
        if has_passed(place, aim.deadline, swept) {
            if let Some(entry) = shard.slab.entry(aim.id.index(), call.guard) {
                filed = filed.and(shard.refile(entry, aim, &self.progress));
            }
        } else {
            self.progress.wakeup().check(at(place, swept), wanted);
        }
        self.accept_filed(call, aim.id, filed)
    }

    /// The slow path of [`arm_or_file`](Self::arm_or_file) if another thread changes the entry.
    /// Arms by an exchange, whatever the old references are.
    #[cold]
    #[inline(never)]
    fn arm_raced(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        Prepared { entry, id }: Prepared<'_, T>,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        let aim = Aim { id, deadline };
        let filed = match exchange_armed(entry, deadline).is_refiling() {
            true => shard.refile_as(Refiler::Helper, entry, aim, &self.progress),
            false => shard.rely(entry, aim, &self.progress),
        };
        self.accept_filed(call, id, filed)
    }

    /// The slow path of [`arm_or_file`](Self::arm_or_file) if the old reference that armed the
    /// timer may not be visited in time after all.
    #[cold]
    #[inline(never)]
    fn ensure_armed(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Result<TimerId, T> {
        self.ensure_visit(call, id, deadline);
        self.accept(call, id)
    }

    /// The variant of [`accept`](Self::accept) that counts what was filed.
    #[inline]
    fn accept_filed(&self, call: Call<'_>, id: TimerId, filed: Filed) -> Result<TimerId, T> {
        self.count_filed(call.thread, filed);
        self.accept(call, id)
    }

    /// Leaves a timer armed, unless the wheel has been closed meanwhile.
    #[inline]
    fn accept(&self, call: Call<'_>, id: TimerId) -> Result<TimerId, T> {
        // Ordered after the arming by its fence or exchange. See "Insert against close" in
        // `engine`.
        if self.is_closed() { self.withdraw(call, id) } else { Ok(id) }
    }

    /// Ends a timer that was armed while the wheel was closed, or for whose reference there is no
    /// memory, makes room for another and returns its value.
    #[cold]
    #[inline(never)]
    fn withdraw(&self, call: Call<'_>, id: TimerId) -> Result<TimerId, T> {
        let shard = self.shards.get(id.shard());
        match shard.and_then(|shard| shard.end_unreturned(id, call.guard)) {
            Some(value) => {
                self.make_room(id.shard(), 1);
                call.thread.counters.add(ThreadCount::Returned, 1);
                Err(value)
            }
            None => Ok(id),
        }
    }

    /// The slow path of [`insert`](Self::insert). Arms a timer in the thread's home shard or, if
    /// that is full, in the next shard that is not.
    pub(crate) fn insert_slow(
        &self,
        call: Call<'_>,
        mut value: T,
        deadline: Tick,
        admission: Admission,
    ) -> Result<TimerId, InsertError<T>> {
        let (home, mut memory) = (ThreadId::current().home(self.shards.len()), true);
        for number in (home..self.shards.len()).chain(0..home) {
            if self.is_closed() {
                break;
            }
            match self.insert_in(number, call, value, deadline, admission) {
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

    /// Inserts into one shard, if it has room and the wheel stays open.
    fn insert_in(
        &self,
        number: usize,
        call: Call<'_>,
        value: T,
        deadline: Tick,
        admission: Admission,
    ) -> Result<TimerId, (T, NoEntry)> {
        if !self.take_room(number, admission) {
            return Err((value, NoEntry::UsedUp));
        }
        match self.claim_entry(number, call) {
            // If the wheel is open, the reason for an error is that there is no memory for a
            // reference.
            Ok(claimed) => self
                .arm_slow(call, &self.shards[number], claimed, value, deadline)
                .map_err(|value| (value, NoEntry::OutOfMemory)),
            Err(why) => {
                self.make_room(number, 1);
                Err((value, why))
            }
        }
    }

    /// Claims a vacant entry of a shard, from the thread's magazines if the shard is its home.
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

    /// The variant of [`arm`](Self::arm) for any thread and any entry.
    fn arm_slow(
        &self,
        call: Call<'_>,
        shard: &Shard<T>,
        claimed: Claimed<'_, Entry<T>>,
        value: T,
        deadline: Tick,
    ) -> Result<TimerId, T> {
        call.thread.counters.add(ThreadCount::Inserted, 1);
        let file = |prepared| self.arm_and_file_slow(call, shard, prepared, deadline);
        self.arm_or_file(call, shard, prepare(shard, claimed, value), deadline, file)
    }

    /// Returns the error for a timer whose deadline is out of range. On a closed wheel, that is the
    /// reason given.
    #[cold]
    pub(crate) fn refuse(&self, value: T, why: OutOfRange) -> InsertError<T> {
        let reason = match self.is_closed() {
            true => Refusal::Closed,
            false => Refusal::BeyondRange(self.beyond_range(why)),
        };
        InsertError { reason, value }
    }
}

/// Writes the value into the entry. Returns the entry with its vacant state.
#[inline(always)]
fn prepare<'g, T>(
    shard: &Shard<T>,
    Claimed { entry, index, vacant }: Claimed<'g, Entry<T>>,
    value: T,
) -> (Prepared<'g, T>, EntryState) {
    // SAFETY: the thread that has claimed an entry holds it exclusively until it arms the timer,
    // which happens in a function that takes what this one returns (I3).
    unsafe { entry.put(value) };
    (Prepared { entry, id: TimerId::new(shard.number, vacant.generation(), index) }, vacant)
}

/// A claimed entry that holds a value and is not armed yet, and the id of the timer.
#[derive(Debug)]
struct Prepared<'g, T> {
    entry: &'g Entry<T>,
    id: TimerId,
}

/// Arms by an exchange, which keeps the refiling flag of a resetter that was held up.
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
