//! Reset: set the deadline of an armed timer by one exchange of its state. A reset to later relies
//! on the reference that is filed already; a reset to earlier [refiles](super::refile). The races
//! are in [`protocol`](super::protocol).

#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::refile::{Aim, Refiler};
use super::{ArmOutcome, Call, opaque, still_pending};
use crate::error::BeyondRange;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::memory::Guard;
use crate::wheel::progress::Progress;
use crate::wheel::shard::{Filed, Shard, in_time};
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::time::Duration;

impl<T> Engine<T> {
    /// Sets a timer's deadline to `delay` from now.
    #[inline(always)]
    pub(crate) fn reset_after(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> ResetOutcome {
        match self.in_window(self.timeline.fast_tick_after(delay, now)) {
            Some(deadline) => self.reset(call, id, deadline),
            None => self.reset_after_slow(call, id, delay, now),
        }
    }

    /// As [`reset_after`](Self::reset_after), for delays that are not plain.
    #[cold]
    #[inline(never)]
    fn reset_after_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> ResetOutcome {
        self.reset_at(call, id, self.tick_after(delay, now))
    }

    /// Sets a timer's deadline, if it is in range.
    pub(crate) fn reset_at(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Result<Tick, OutOfRange>,
    ) -> ResetOutcome {
        match deadline {
            Ok(deadline) => self.reset(call, id, deadline),
            // A timer that is not armed cannot be reset, whatever the deadline.
            Err(why) if self.contains(id, call.guard) => ResetOutcome::OutOfRange(why),
            Err(_) => ResetOutcome::NotArmed,
        }
    }

    /// What came of a reset, for the caller.
    #[inline(always)]
    pub(crate) fn result_of(&self, outcome: ResetOutcome) -> Result<bool, BeyondRange> {
        match outcome {
            ResetOutcome::Done => Ok(true),
            ResetOutcome::NotArmed => Ok(false),
            ResetOutcome::OutOfRange(why) => Err(self.beyond_range(why)),
        }
    }

    /// Sets a timer's deadline.
    #[inline(always)]
    fn reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        self.reset_and(call, id, deadline, |counters| counters.add(ThreadCount::Reset, 1))
    }

    /// As [`reset`](Self::reset), where no other thread has the caller's id.
    #[inline(always)]
    pub(crate) fn reset_exclusive(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
    ) -> ResetOutcome {
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
    ) -> ResetOutcome {
        let Some(shard) = self.shards.get(id.shard()) else {
            return self.reset_slow(call, id, deadline);
        };
        match shard.try_postpone(id, deadline, &self.progress, call.guard) {
            ArmOutcome::Done => {
                count(&call.thread.counters);
                ResetOutcome::Done
            }
            ArmOutcome::NotInTime => self.ensure_reset(call, id, deadline),
            ArmOutcome::MustFile(()) | ArmOutcome::Raced(()) => self.reset_slow(call, id, deadline),
        }
    }

    /// As [`reset`](Self::reset), in every case.
    #[inline(never)]
    fn reset_slow(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        let shard = self.shards.get(id.shard());
        let done =
            shard.and_then(|shard| shard.set_deadline(id, deadline, &self.progress, call.guard));
        let Some(filed) = done else {
            return ResetOutcome::NotArmed;
        };
        call.thread.counters.add(ThreadCount::Reset, 1);
        self.count_filed(call.thread, filed);
        ResetOutcome::Done
    }

    /// As [`reset`](Self::reset), where the reference that was relied on is not in time after all.
    #[cold]
    #[inline(never)]
    fn ensure_reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        self.ensure_ref(call, id, deadline);
        call.thread.counters.add(ThreadCount::Reset, 1);
        opaque(ResetOutcome::Done)
    }
}

impl<T> Shard<T> {
    /// Sets the deadline of the timer that `id` refers to, in the common case: a reference is
    /// visited in time, and nobody is refiling.
    #[inline(always)]
    fn try_postpone(
        &self,
        id: TimerId,
        deadline: Tick,
        progress: &Progress,
        guard: &Guard,
    ) -> ArmOutcome {
        let Some(entry) = self.slab.entry(id.index(), guard) else {
            return ArmOutcome::Raced(());
        };
        let (seen, next_visit) = (entry.state.load(), entry.next_visit.load());
        if !seen.is_unflagged_of(id) {
            return ArmOutcome::Raced(());
        }
        if !in_time(next_visit, deadline, progress.swept()) {
            return ArmOutcome::MustFile(());
        }
        let pushed = seen.with_deadline(deadline);
        if entry.state.try_reset(seen, pushed).is_err() {
            ArmOutcome::Raced(())
        } else if !still_pending(entry, pushed, next_visit, progress) {
            ArmOutcome::NotInTime
        } else {
            ArmOutcome::Done
        }
    }

    /// Sets the deadline of the timer that `id` refers to. `None`: it has ended, or never was.
    fn set_deadline(
        &self,
        id: TimerId,
        deadline: Tick,
        progress: &Progress,
        guard: &Guard,
    ) -> Option<Filed> {
        let entry = self.slab.entry(id.index(), guard)?;
        let aim = Aim { id, deadline };
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
                    return Some(self.refile_as(Refiler::Owner, entry, aim, progress));
                }
                Ok(()) if free => return Some(self.rely(entry, aim, progress)),
                Ok(()) => return Some(self.refile_as(Refiler::Helper, entry, aim, progress)),
                Err(now) => seen = now,
            }
        }
    }
}

/// The outcome of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ResetOutcome {
    /// The timer has ended, or never was.
    NotArmed,
    /// The deadline is set.
    Done,
    /// It cannot be; the timer is armed, and keeps the one that it has.
    OutOfRange(OutOfRange),
}
