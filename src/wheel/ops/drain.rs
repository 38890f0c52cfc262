//! Drain: end every armed timer and hand it back. The race against inserts is described in
//! [`engine`](crate::wheel::engine).

#![forbid(unsafe_code)]

use super::Call;
use crate::panics::unless_locked;
use crate::sync::Relaxed;
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::Engine;
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::Progress;
use crate::wheel::shard::Shard;
use crate::wheel::tick::Tick;

impl<T> Engine<T> {
    /// Ends every armed timer and hands each back, with those that a sweeper left behind.
    pub(crate) fn drain(&self, call: Call<'_>, mut hand_back: impl FnMut(TimerId, Tick, T)) {
        // Relaxed: before any timer ends by this, and so known to who knows of that.
        self.drained.store(true, Relaxed);
        let left = self.leftovers.get().and_then(|left| unless_locked(left.try_lock()));
        let left = left.map(|mut left| std::mem::take(&mut left.timers));
        let counters = &call.thread.counters;
        for (id, deadline, value) in left.into_iter().flatten() {
            counters.add(ThreadCount::Returned, 1);
            hand_back(id, deadline, value);
        }
        for shard in &self.shards {
            shard.end_all(&self.progress, call.guard, |id, deadline, value| {
                self.make_room(id.shard(), 1);
                counters.add(ThreadCount::Returned, 1);
                hand_back(id, deadline, value);
            });
        }
        self.check_memory();
    }
}

impl<T> Shard<T> {
    /// Calls `hand_back` with each armed timer after ending it.
    fn end_all(
        &self,
        progress: &Progress,
        guard: &Guard,
        mut hand_back: impl FnMut(TimerId, Tick, T),
    ) {
        self.slab.for_each(guard, |index, entry| {
            // An exchange, not a look: of an insert that arms by an exchange as well, this is
            // before it, and shows it that the wheel was closed, or after it, and sees its timer.
            let mut state = entry.state.load();
            // One that is pristine may be on a page that is away, where nobody writes. The first
            // timer that comes to live there is armed by a store, and a fence.
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
            // The insert that armed this timer may not have filed the reference that its
            // `next_visit` tells of.
            let ended = self.end(entry, id, guard, || entry.next_visit.clear());
            if let Some((value, ended)) = ended {
                hand_back(id, ended.deadline(progress.swept()), value);
            }
        });
    }
}
