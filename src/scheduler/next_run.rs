//! [`NextRun`]: the next event of a closure as an instant; and [`Schedule`]: the same before it is
//! resolved against a clock.
//!
//! A [`Jitter`] belongs to the timer and not to the time of the rule. The rule sees the run without
//! it, so a rate does not drift.

#![forbid(unsafe_code)]

use super::rule::{LastRun, Next, Rule};
use crate::{BeyondRange, Jitter, Pinned, Refusal, Wheel};
use std::time::{Duration, Instant, SystemTime};

/// Delays that overflow `Instant` are clamped to this: 2^32 s (136 years).
const MAX_DELAY: Duration = Duration::from_secs(1 << 32);

/// The next event of a closure: a run, or a question to its rule.
#[derive(Clone, Copy)]
pub(super) struct NextRun {
    /// The instant of the event, including jitter.
    pub(super) due: Instant,
    /// The instant of the next run as far as the rule knows. Equal to `due` unless this is a
    /// question.
    pub(super) runs_at: Option<Instant>,
    /// The jitter that `due` includes.
    pub(super) jitter: Duration,
    /// `true` for a question to the rule, `false` for a run.
    pub(super) asks_rule: bool,
    /// `true` if a handle has set the instant, and not the rule.
    pub(super) moved: bool,
    /// `true` if the event was due when it was resolved.
    pub(super) is_due: bool,
    /// The wall-clock time of the run, if the rule uses the wall clock.
    pub(super) time: Option<SystemTime>,
}

/// The reply of a rule, or the request of a handle, before it is resolved to an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    next: Next,
    jitter: Duration,
    time: Option<SystemTime>,
    /// The delay until the next run, if the rule wants to be asked again before it.
    expected: Option<Duration>,
}

impl NextRun {
    /// A run at `wanted` plus `jitter`, or at `wanted` if the sum overflows.
    fn at(wanted: Instant, jitter: Duration, time: Option<SystemTime>) -> Self {
        let (due, jitter) = match wanted.checked_add(jitter) {
            Some(due) => (due, jitter),
            None => (wanted, Duration::ZERO),
        };
        let runs_at = Some(due);
        Self { due, runs_at, jitter, asks_rule: false, moved: false, is_due: false, time }
    }

    /// Returns the instant that the rule wanted for the run. The next run is counted from here.
    pub(super) fn due_by_rule(&self) -> Instant {
        self.due.checked_sub(self.jitter).unwrap_or(self.due)
    }
}

impl Schedule {
    /// Creates a schedule without jitter.
    pub(super) fn exactly(next: Next) -> Self {
        Self { next, jitter: Duration::ZERO, time: None, expected: None }
    }

    /// Creates a schedule with a jitter.
    pub(super) fn with_jitter(next: Next, jitter: Jitter) -> Self {
        Self { jitter: jitter.draw(), ..Self::exactly(next) }
    }

    /// Asks `rule` for the next event.
    pub(super) fn by_rule(rule: &mut dyn Rule, last: &LastRun, jitter: Jitter) -> Self {
        let next = rule.next(last);
        let expected = if let Next::AskAfter(_) = next { rule.next_delay() } else { None };
        Self { time: rule.next_time(), expected, ..Self::with_jitter(next, jitter) }
    }

    /// Returns `true` if no event follows.
    pub(super) fn is_end(&self) -> bool {
        self.next == Next::End
    }

    /// Resolves the schedule to an instant, or to `None` at its end. A delay is counted from the
    /// time of the clock, including its lag.
    pub(super) fn resolve<T: Send>(
        self,
        wheel: &Wheel<T>,
        pinned: &Pinned<'_, T>,
    ) -> Result<Option<NextRun>, Refusal> {
        let Self { next, jitter, time, expected } = self;
        let (delay, asks_rule) = match next {
            Next::End => return Ok(None),
            Next::At(due) => {
                let next_run = NextRun::at(due, jitter, time);
                return Ok(Some(NextRun { is_due: next_run.due <= pinned.now(), ..next_run }));
            }
            Next::After(delay) => (delay, false),
            Next::AskAfter(delay) => (delay, true),
        };
        match pinned.instant_after(delay).or_else(|| pinned.instant_after(MAX_DELAY)) {
            Some(due) if asks_rule => {
                let runs_at = expected.and_then(|delay| pinned.instant_after(delay));
                Ok(Some(NextRun { asks_rule, runs_at, ..NextRun::at(due, Duration::ZERO, time) }))
            }
            Some(due) => {
                let is_due = delay.is_zero() && jitter.is_zero();
                Ok(Some(NextRun { is_due, ..NextRun::at(due, jitter, time) }))
            }
            // The clock is too close to the last instant that `Instant` represents.
            None => {
                let longest = wheel.longest_delay();
                Err(Refusal::BeyondRange(BeyondRange { longest, unswept: false }))
            }
        }
    }
}
