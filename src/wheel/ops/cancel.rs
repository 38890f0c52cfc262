//! Cancel: end a timer by one exchange of its state and return the value. References to its entry
//! and `next_visit` stay. The races are in [`protocol`](super::protocol).

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::{Call, opaque};
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::prefetch::prefetch;
use crate::wheel::progress::upkeep_flag::UpkeepFlag;
use crate::wheel::shard::Shard;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::magazine::Magazines;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Ends a timer and returns its value.
    #[inline(always)]
    pub(crate) fn cancel(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        let Some((value, _)) = self.cancel_into_magazine(call, id) else {
            return self.cancel_slow(call, id);
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
    fn cancel_slow(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        self.end_timer(call, id).map(|(value, _)| value)
    }

    /// As [`cancel`](Self::cancel), with the deadline that the timer had.
    pub(crate) fn cancel_with_tick(&self, call: Call<'_>, id: TimerId) -> Option<(T, Tick)> {
        let (value, ended) = self.end_timer(call, id)?;
        Some((value, ended.deadline(self.progress.swept())))
    }

    /// Ends a timer, in the common case: its entry goes into the caller's magazines.
    #[inline(always)]
    fn cancel_into_magazine(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        if id.shard() != call.thread.fast_home() {
            return None;
        }
        self.shards.get(id.shard())?.try_end_into(&call.thread.vacant, id, call.guard)
    }

    /// Ends a timer, wherever it is.
    fn end_timer(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        let (number, thread) = (id.shard(), call.thread);
        let shard = self.shards.get(number)?;
        if thread.keeps(number) {
            // Entries that did not fit into the full magazines are moved to the slab first.
            shard.slab.unload(&thread.vacant, call.guard);
            if let Some(ended) = self.cancel_into_magazine(call, id) {
                self.count_cancelled(thread);
                return Some(ended);
            }
        }
        let ended = shard.end_by_id(id, call.guard)?;
        self.make_room(number, 1);
        self.count_cancelled(thread);
        Some(ended)
    }

    #[inline]
    fn count_cancelled(&self, thread: &ThreadState) {
        let cancelled = thread.counters.add(ThreadCount::Cancelled, 1);
        self.note_garbage(cancelled, 1);
    }
}

impl<T> Shard<T> {
    /// Ends the timer that `id` refers to and returns its value, and its last state.
    fn end_by_id(&self, id: TimerId, guard: &Guard) -> Option<(T, EntryState)> {
        let entry = self.slab.entry(id.index(), guard)?;
        self.end(entry, id, guard, || ())
    }

    /// As [`end_by_id`](Self::end_by_id), in the common case: the entry goes into the caller's
    /// magazines, whose home this is. `None`: nothing was done, for want of room there, or because
    /// the timer has ended, or is being changed.
    #[inline(always)]
    fn try_end_into(
        &self,
        magazines: &Magazines,
        id: TimerId,
        guard: &Guard,
    ) -> Option<(T, EntryState)> {
        let entry = self.slab.entry(id.index(), guard)?;
        if size_of::<Entry<T>>() > LINE {
            // State and value lie in two cache lines.
            prefetch(entry);
        }
        let top = magazines.with_room()?;
        let seen = entry.state.load();
        let ended = EntryState::end_of(id, top);
        if !seen.is_unflagged_of(id) || ended.is_exhausted() {
            return None;
        }
        entry.state.try_end_to(seen, ended).ok()?;
        // SAFETY: the timer was ended just above and its entry is put away below.
        let value = unsafe { entry.take() };
        magazines.push(id.index());
        Some((value, seen))
    }

    /// As [`end_by_id`](Self::end_by_id), of a timer whose insert has not returned, and which may
    /// not have filed the reference that the entry's `next_visit` names.
    pub(super) fn end_unreturned(&self, id: TimerId, guard: &Guard) -> Option<T> {
        let entry = self.slab.entry(id.index(), guard)?;
        self.end(entry, id, guard, || entry.next_visit.clear()).map(|(value, _)| value)
    }

    /// Ends a timer, calls `between` and releases its entry. Returns its value and its last state.
    #[inline]
    pub(super) fn end(
        &self,
        entry: &Entry<T>,
        id: TimerId,
        guard: &Guard,
        between: impl FnOnce(),
    ) -> Option<(T, EntryState)> {
        let mut seen = entry.state.load();
        let mut released = self.slab.begin_release();
        while seen.generation() == id.generation() {
            match entry.state.try_end(seen, released.next()) {
                Ok(vacant) => {
                    // SAFETY: the timer was ended just above and its entry is released below.
                    let value = unsafe { entry.take() };
                    between();
                    self.slab.gather(&mut released, id.index(), vacant, guard);
                    self.slab.release(&mut released, guard);
                    return Some((value, seen));
                }
                Err(now) => seen = now,
            }
        }
        None
    }
}

/// The length of the common processors' cache lines, in bytes.
const LINE: usize = 64;
