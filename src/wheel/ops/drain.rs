//! Drain: ends every armed timer and hands it back. The race against inserts is described in
//! [`engine`](crate::wheel::engine).

#![forbid(unsafe_code)]

use crate::panics::unless_locked;
use crate::sync::Relaxed;
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::progress::Progress;
use crate::wheel::shard::Shard;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Ends every armed timer and hands it back, after those that a dropped sweeper left behind.
    ///
    /// Calls `each` under a guard.
    pub(crate) fn drain(&self, thread: &ThreadState, mut each: impl FnMut(TimerId, Tick, T)) {
        // Relaxed: set before this drain ends any timer. A thread that knows of such an end was
        // notified of it, and so also sees this store.
        self.drained.store(true, Relaxed);
        let left = self.leftovers.get().and_then(|left| unless_locked(left.try_lock()));
        let left = left.map(|mut left| std::mem::take(&mut left.timers));
        let counters = &thread.counters;
        for (id, deadline, value) in left.into_iter().flatten() {
            counters.add(ThreadCount::Returned, 1);
            each(id, deadline, value);
        }
        for shard in &self.shards {
            shard.end_all(&self.progress, |id, deadline, value| {
                self.make_room(id.shard(), 1);
                counters.add(ThreadCount::Returned, 1);
                each(id, deadline, value);
            });
        }
        self.check_memory();
    }
}

impl<T> Shard<T> {
    /// Calls `each` with each armed timer after ending it.
    fn end_all(&self, progress: &Progress, mut each: impl FnMut(TimerId, Tick, T)) {
        self.slab.for_each(&pin(), |index, entry| {
            // An exchange and not a load. An insert that relies on an old reference also arms by an
            // exchange. If this exchange comes first, it shows the insert that the wheel was
            // closed. If it comes later, it sees the timer.
            let mut state = entry.state.load();
            // A pristine entry may be on a page that has been removed, where no thread writes. The
            // first timer of such an entry is armed by a store and a fence.
            while !state.is_pristine() {
                match entry.state.try_revalidate(state) {
                    Ok(()) => break,
                    Err(now) => state = now,
                }
            }
            if !state.is_armed() {
                return;
            }
            let id = TimerId::new(self.number, state.generation(), index);
            // The insert that armed this timer may not have filed the reference that `next_visit`
            // describes.
            let ended = self.end(entry, id, || entry.next_visit.clear());
            if let Some((value, ended)) = ended {
                each(id, ended.deadline(progress.swept()), value);
            }
        });
    }
}
