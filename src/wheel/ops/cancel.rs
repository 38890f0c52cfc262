//! Cancel: ends a timer by one exchange of its state and returns the value. References to its entry
//! and `next_visit` stay. The steps and their races are in [`protocol`](super::protocol).
//!
//! ```text
//! cancel                   the thread's magazines have room for the entry
//! └── cancel_slow          any entry, which goes into the magazines or to the shard
//! ```

#![allow(clippy::inline_always, reason = "the common case is to be one function")]

use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::{pin, prefetch};
use crate::wheel::shard::Shard;
use crate::wheel::slab::entry::Entry;
use crate::wheel::slab::state::EntryState;
use crate::wheel::thread_state::ThreadState;

impl<T> Engine<T> {
    /// Ends a timer and returns its value in the usual case: the thread's magazines have room for
    /// the entry, and no other thread changes it. Otherwise calls `slow`.
    #[inline(always)]
    pub(crate) fn cancel(&self, id: TimerId, slow: impl FnOnce() -> Option<T>) -> Option<T> {
        if let Some(thread) = self.threads.known()
            && let Some((value, _)) = self.cancel_into_magazines(thread, id)
        {
            thread.counters.add_own(ThreadCount::Cancelled, 1);
            return Some(value);
        }
        slow()
    }

    /// Ends a timer and puts its entry into the thread's magazines. Returns the value and the last
    /// state. Returns `None`, without ending the timer, if the magazines have no room, if the timer
    /// has ended, or if another thread is changing it.
    #[inline(always)]
    fn cancel_into_magazines(&self, thread: &ThreadState, id: TimerId) -> Option<(T, EntryState)> {
        if !thread.keeps_entries_of(id.shard()) {
            return None;
        }
        let guard = pin();
        let entry = self.shards.get(id.shard())?.slab.entry(id.index(), &guard)?;
        if size_of::<Entry<T>>() > LINE {
            // State and value lie in two cache lines.
            prefetch(entry);
        }
        let top = thread.vacant.with_room()?;
        let seen = entry.state.load();
        if !seen.is_unflagged_of(id) {
            return None;
        }
        let ended = EntryState::end_of(id, top)?;
        entry.state.try_end_to(seen, ended).ok()?;
        // SAFETY: the exchange above has ended the timer, and the entry is put away below (I3).
        let value = unsafe { entry.take() };
        thread.vacant.push(id.index());
        self.make_room(id.shard(), 1);
        Some((value, seen))
    }

    /// The general case of a cancel. Returns the value and the last state.
    pub(crate) fn cancel_slow(&self, thread: &ThreadState, id: TimerId) -> Option<(T, EntryState)> {
        let guard = pin();
        let shard = self.shards.get(id.shard())?;
        // Entries that did not fit into the full magazines are moved to the slab first, even if
        // there is nothing to cancel.
        let mut released = match thread.keeps_entries_of(id.shard()) {
            true => shard.slab.unload(&thread.vacant, &guard),
            false => 0,
        };
        let ended = self.cancel_into_magazines(thread, id).or_else(|| {
            let entry = shard.slab.entry(id.index(), &guard)?;
            let ended = shard.end(entry, id, || ())?;
            self.make_room(id.shard(), 1);
            released += 1;
            Some(ended)
        });
        if ended.is_some() {
            thread.counters.add(ThreadCount::Cancelled, 1);
        }
        // A cancel in the usual case releases no entry, and therefore never checks the memory.
        self.note_garbage(thread, released);
        ended
    }
}

impl<T> Shard<T> {
    /// Ends a timer, calls `before_release` and releases its entry to the shard. Returns the value
    /// and the last state.
    #[inline]
    pub(super) fn end(
        &self,
        entry: &Entry<T>,
        id: TimerId,
        before_release: impl FnOnce(),
    ) -> Option<(T, EntryState)> {
        let guard = pin();
        let mut seen = entry.state.load();
        let mut released = self.slab.begin_release();
        while seen.generation() == id.generation() {
            match entry.state.try_end(seen, released.next()) {
                Ok(vacant) => {
                    // SAFETY: the exchange above has ended the timer, and the entry is released
                    // below (I3).
                    let value = unsafe { entry.take() };
                    before_release();
                    self.slab.gather(&mut released, id.index(), vacant, &guard);
                    self.slab.release(&mut released, &guard);
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
