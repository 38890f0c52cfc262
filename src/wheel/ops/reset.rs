//! Reset: sets the deadline of an armed timer by one exchange of its state. A reset to later relies
//! on an old reference. A reset to earlier [refiles](super::refile). The steps and their races are
//! in [`protocol`](super::protocol).
//!
//! ```text
//! reset_after, reset_at
//! └── reset_and            an old reference is visited in time: one compare-exchange
//!     └── reset_slow       any other case, in which a reference may have to be filed
//! ```

#![forbid(unsafe_code)]
#![allow(clippy::inline_always, reason = "the common cases are to be one function each")]

use super::refile::{Aim, Refiler};
use super::{Call, opaque, still_pending};
use crate::error::BeyondRange;
use crate::wheel::counters::{ThreadCount, ThreadCounters};
use crate::wheel::engine::{Engine, OutOfRange};
use crate::wheel::id::TimerId;
use crate::wheel::shard::{Filed, in_time};
use crate::wheel::tick::Tick;
use crate::wheel::wheel_instant::WheelInstant;
use std::time::Duration;

impl<T> Engine<T> {
    /// Moves the deadline of a timer to `delay` from now.
    #[inline(always)]
    pub(crate) fn reset_after(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> ResetOutcome {
        match self.usual_tick_after(delay, now) {
            Some(deadline) => self.reset(call, id, deadline),
            None => self.reset_after_slow(call, id, delay, now),
        }
    }

    /// The slow path of [`reset_after`](Self::reset_after), for any delay.
    #[cold]
    #[inline(never)]
    fn reset_after_slow(
        &self,
        call: Call<'_>,
        id: TimerId,
        delay: Duration,
        now: WheelInstant,
    ) -> ResetOutcome {
        self.reset_at(call, id, self.tick_of(self.timeline.after(delay, now), now))
    }

    /// Moves the deadline of a timer to a tick, if it is in range.
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

    /// Moves the deadline of a timer.
    #[inline(always)]
    fn reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        self.reset_and(call, id, deadline, |counters| counters.add(ThreadCount::Reset, 1))
    }

    /// The variant of [`reset`](Self::reset) for a caller whose thread has an id of its own.
    #[inline(always)]
    pub(crate) fn reset_exclusive(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
    ) -> ResetOutcome {
        self.reset_and(call, id, deadline, |counters| counters.add_own(ThreadCount::Reset, 1))
    }

    /// Moves the deadline of a timer, and calls `count` if an old reference is visited in time.
    #[inline(always)]
    fn reset_and(
        &self,
        call: Call<'_>,
        id: TimerId,
        deadline: Tick,
        count: impl FnOnce(&ThreadCounters),
    ) -> ResetOutcome {
        let shard = self.shards.get(id.shard());
        let Some(entry) = shard.and_then(|shard| shard.slab.entry(id.index(), call.guard)) else {
            return self.reset_slow(call, id, deadline);
        };
        let (seen, next_visit) = (entry.state.load(), entry.next_visit.load());
        // After the exchange one check suffices, which finds out if the visit is still to come.
        if !seen.is_unflagged_of(id) || next_visit > deadline {
            return self.reset_slow(call, id, deadline);
        }
        let pushed = seen.with_deadline(deadline);
        if entry.state.try_reset(seen, pushed).is_err() {
            return self.reset_slow(call, id, deadline);
        }
        if !still_pending(entry, pushed, next_visit, &self.progress) {
            return self.ensure_reset(call, id, deadline);
        }
        count(&call.thread.counters);
        ResetOutcome::Done
    }

    /// The slow path of [`reset`](Self::reset), for any timer and any deadline.
    #[inline(never)]
    fn reset_slow(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        let Some(filed) = self.set_deadline(call, id, deadline) else {
            return ResetOutcome::NotArmed;
        };
        call.thread.counters.add(ThreadCount::Reset, 1);
        self.count_filed(call.thread, filed);
        ResetOutcome::Done
    }

    /// Sets the deadline of a timer, and ensures that a reference is visited in time. Returns
    /// `None` if the timer has ended or never existed.
    fn set_deadline(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> Option<Filed> {
        let (shard, progress) = (self.shards.get(id.shard())?, &self.progress);
        let entry = shard.slab.entry(id.index(), call.guard)?;
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
                    return Some(shard.refile_as(Refiler::Owner, entry, aim, progress));
                }
                Ok(()) if free => return Some(shard.rely(entry, aim, progress)),
                Ok(()) => return Some(shard.refile_as(Refiler::Helper, entry, aim, progress)),
                Err(now) => seen = now,
            }
        }
    }

    /// The slow path of [`reset`](Self::reset) if the old reference may not be visited in time
    /// after all. The deadline is set.
    #[cold]
    #[inline(never)]
    fn ensure_reset(&self, call: Call<'_>, id: TimerId, deadline: Tick) -> ResetOutcome {
        self.ensure_visit(call, id, deadline);
        call.thread.counters.add(ThreadCount::Reset, 1);
        opaque(ResetOutcome::Done)
    }

    /// Converts the outcome of a reset to the result that the caller gets.
    #[inline(always)]
    pub(crate) fn result_of(&self, outcome: ResetOutcome) -> Result<bool, BeyondRange> {
        match outcome {
            ResetOutcome::Done => Ok(true),
            _ => self.result_of_refused(outcome),
        }
    }

    /// The slow path of [`result_of`](Self::result_of), which the caller of a reset need not
    /// contain.
    #[cold]
    #[inline(never)]
    fn result_of_refused(&self, outcome: ResetOutcome) -> Result<bool, BeyondRange> {
        match outcome {
            ResetOutcome::Done => Ok(true),
            ResetOutcome::NotArmed => Ok(false),
            ResetOutcome::OutOfRange(why) => Err(self.beyond_range(why)),
        }
    }
}

/// The outcome of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum ResetOutcome {
    /// The timer has ended or never existed.
    NotArmed,
    /// The deadline is set.
    Done,
    /// The deadline is out of range. The timer is armed and keeps its deadline.
    OutOfRange(OutOfRange),
}
