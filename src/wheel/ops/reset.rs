//! Reset: sets the deadline of an armed timer by one exchange of its state. A reset to later relies
//! on an old reference. A reset to earlier [refiles](super::refile). The steps and their races are
//! in [`protocol`](super::protocol).
//!
//! ```text
//! reset                    an old reference is visited in time: one exchange
//! ├── ensure_reset_visited         it may not be after all
//! └── reset_slow           any deadline and any entry, and a new reference if it is needed
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the common case is to be one function")]

use super::refile::{Refiler, Target};
use super::still_pending;
use crate::wheel::counters::ThreadCount;
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::shard::{Filed, in_time};
use crate::wheel::slab::entry::Entry;
use crate::wheel::thread_state::ThreadState;
use crate::wheel::tick::Tick;
use std::hint::black_box;

impl<T> Engine<T> {
    /// Moves the deadline of a timer in the usual case: `deadline` is known at once, and an old
    /// reference is visited in time. Calls `slow` if the deadline is not known.
    #[inline(always)]
    pub(crate) fn reset(
        &self,
        id: TimerId,
        deadline: impl FnOnce(&ThreadState) -> Option<Tick>,
        slow: impl FnOnce() -> Result<(), NotReset>,
    ) -> Result<(), NotReset> {
        let guard = pin();
        let known = self.threads.known().and_then(|thread| Some((thread, deadline(thread)?)));
        let Some((thread, deadline)) = known else { return slow() };
        if let Some(shard) = self.shards.get(id.shard())
            && let Some(entry) = shard.slab.entry(id.index(), &guard)
        {
            let (seen, next_visit) = (entry.state.load(), entry.next_visit.load());
            // After the exchange one check suffices, which finds out if the visit is still to come.
            if seen.is_unflagged_of(id) && next_visit <= deadline {
                let pushed = seen.with_deadline(deadline);
                if entry.state.try_reset(seen, pushed).is_ok() {
                    if !still_pending(entry, pushed, next_visit, &self.progress) {
                        return self.ensure_reset_visited(thread, entry, Target { id, deadline });
                    }
                    thread.counters.add_own(ThreadCount::Reset, 1);
                    return Ok(());
                }
            }
        }
        self.reset_slow(thread, id, Ok(deadline))
    }

    /// Ensures a visit of a timer whose deadline is set, because its old reference may not be
    /// visited in time after all.
    #[cold]
    #[inline(never)]
    fn ensure_reset_visited(
        &self,
        thread: &ThreadState,
        entry: &Entry<T>,
        target: Target,
    ) -> Result<(), NotReset> {
        let filed = self.shard(target.id.shard()).ensure_reference(entry, target, &self.progress);
        self.count_filed(thread, filed);
        thread.counters.add(ThreadCount::Reset, 1);
        // Hidden from the optimiser, which would otherwise build the result in the caller, after
        // the call, and save registers for that.
        black_box(Ok(()))
    }

    /// The general case of a reset.
    #[inline(never)]
    pub(crate) fn reset_slow(
        &self,
        thread: &ThreadState,
        id: TimerId,
        deadline: Result<Tick, OutOfRange>,
    ) -> Result<(), NotReset> {
        let deadline = match deadline {
            Ok(deadline) => deadline,
            // A timer that is not armed cannot be reset, whatever the deadline.
            Err(why) if self.contains(id) => return Err(NotReset::OutOfRange(why)),
            Err(_) => return Err(NotReset::NotArmed),
        };
        let filed = self.set_deadline(id, deadline).ok_or(NotReset::NotArmed)?;
        thread.counters.add(ThreadCount::Reset, 1);
        self.count_filed(thread, filed);
        Ok(())
    }

    /// Does R1 to R7: sets the deadline of a timer, and ensures that a reference is visited in
    /// time. Returns `None` if the timer has ended or never existed.
    fn set_deadline(&self, id: TimerId, deadline: Tick) -> Option<Filed> {
        let (guard, progress) = (pin(), &self.progress);
        let shard = self.shards.get(id.shard())?;
        let entry = shard.slab.entry(id.index(), &guard)?;
        let target = Target { id, deadline };
        let mut seen = entry.state.load();
        loop {
            if seen.generation() != id.generation() {
                return None;
            }
            // A first check of `next_visit` saves an exchange when a reference that is visited
            // earlier will be needed.
            let free = !seen.is_refiling();
            let early = free && !in_time(entry.next_visit.load(), deadline, progress.swept());
            let next = seen.with_deadline(deadline);
            let next = if early { next.refiling() } else { next };
            match entry.state.try_reset(seen, next) {
                Ok(()) if early => {
                    return Some(shard.refile_as(Refiler::Owner, entry, target, progress));
                }
                Ok(()) if free => return Some(shard.ensure_reference(entry, target, progress)),
                Ok(()) => return Some(shard.refile_as(Refiler::Helper, entry, target, progress)),
                Err(now) => seen = now,
            }
        }
    }
}

/// The reason why a reset changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotReset {
    /// The timer has ended or never existed.
    NotArmed,
    /// The timer is armed and keeps its deadline.
    OutOfRange(OutOfRange),
}
