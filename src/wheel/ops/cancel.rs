//! Cancel: ends a timer by one exchange of its state and returns the value. References to its entry
//! and `next_visit` stay. The steps and their races are in [`protocol`](super::protocol).
//!
//! ```text
//! cancel
//! └── cancel_into_magazine   the thread's magazine has room for the entry
//!     └── cancel_slow        any other case
//! ```

#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::Call;
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::prefetch::prefetch;
use crate::wheel::shard::Shard;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Ends a timer and returns its value.
    #[inline(always)]
    pub(crate) fn cancel(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        let Some((value, _)) = self.cancel_into_magazine(call, id) else {
            return self.cancel_slow(call, id);
        };
        self.make_room(id.shard(), 1);
        call.thread.counters.add_own(ThreadCount::Cancelled, 1);
        Some(value)
    }

    /// Ends a timer and puts its entry into the thread's magazines. Returns the value and the last
    /// state. Returns `None`, without ending the timer, if the magazines have no room, if the timer
    /// has ended, or if another thread is changing it.
    #[inline(always)]
    fn cancel_into_magazine(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        if !call.thread.keeps(id.shard()) {
            return None;
        }
        let entry = self.shards.get(id.shard())?.slab.entry(id.index(), call.guard)?;
        if size_of::<Entry<T>>() > LINE {
            // State and value lie in two cache lines.
            prefetch(entry);
        }
        let magazines = &call.thread.vacant;
        let top = magazines.with_room()?;
        let seen = entry.state.load();
        if !seen.is_unflagged_of(id) {
            return None;
        }
        let ended = EntryState::end_of(id, top)?;
        entry.state.try_end_to(seen, ended).ok()?;
        // SAFETY: the exchange above has ended the timer, and the entry is put away below (I3).
        let value = unsafe { entry.take() };
        magazines.push(id.index());
        Some((value, seen))
    }

    /// The slow path of [`cancel`](Self::cancel), for any timer and any thread.
    #[inline(never)]
    fn cancel_slow(&self, call: Call<'_>, id: TimerId) -> Option<T> {
        self.end_timer(call, id).map(|(value, _)| value)
    }

    /// The variant of [`cancel`](Self::cancel) that also returns the deadline of the timer.
    pub(crate) fn cancel_with_tick(&self, call: Call<'_>, id: TimerId) -> Option<(T, Tick)> {
        let (value, ended) = self.end_timer(call, id)?;
        Some((value, ended.deadline(self.progress.swept())))
    }

    /// Ends a timer and returns its value and its last state. Its entry goes into the thread's
    /// magazines, or else to the shard.
    fn end_timer(&self, call: Call<'_>, id: TimerId) -> Option<(T, EntryState)> {
        let (number, thread) = (id.shard(), call.thread);
        let shard = self.shards.get(number)?;
        // Entries that did not fit into the full magazines are moved to the slab first, even if
        // there is nothing to cancel.
        let mut released = match thread.keeps(number) {
            true => shard.slab.unload(&thread.vacant, call.guard),
            false => 0,
        };
        let ended = self.cancel_into_magazine(call, id).or_else(|| {
            let entry = shard.slab.entry(id.index(), call.guard)?;
            let ended = shard.end(entry, id, call.guard, || ())?;
            released += 1;
            Some(ended)
        });
        if ended.is_some() {
            self.make_room(number, 1);
            thread.counters.add(ThreadCount::Cancelled, 1);
        }
        // A cancel on the fast path releases no entry, and therefore never checks the memory.
        self.note_garbage(thread, released);
        ended
    }
}

impl<T> Shard<T> {
    /// Ends a timer whose insert has not returned, and which may not have filed the reference that
    /// `next_visit` describes. Returns the value.
    pub(super) fn end_unreturned(&self, id: TimerId, guard: &Guard) -> Option<T> {
        let entry = self.slab.entry(id.index(), guard)?;
        self.end(entry, id, guard, || entry.next_visit.clear()).map(|(value, _)| value)
    }

    /// Ends a timer, calls `before_release` and releases its entry to the shard. Returns the value
    /// and the last state.
    #[inline]
    pub(super) fn end(
        &self,
        entry: &Entry<T>,
        id: TimerId,
        guard: &Guard,
        before_release: impl FnOnce(),
    ) -> Option<(T, EntryState)> {
        let mut seen = entry.state.load();
        let mut released = self.slab.begin_release();
        while seen.generation() == id.generation() {
            match entry.state.try_end(seen, released.next()) {
                Ok(vacant) => {
                    // SAFETY: the exchange above has ended the timer, and the entry is released
                    // below (I3).
                    let value = unsafe { entry.take() };
                    before_release();
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

/// The length of a cache line of common processors, in bytes.
const LINE: usize = 64;
