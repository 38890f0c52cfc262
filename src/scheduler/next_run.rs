//! [`NextRun`]: what is to come of a closure, and when; and [`Jitter`], by which runs are put off.

#![forbid(unsafe_code)]

use super::rule::{LastRun, Next, Rule};
use crate::{BeyondRange, Pinned, Refusal, Wheel};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// What a delay counts as that no instant can tell: 2^32 s, 136 years.
const MAX_DELAY: Duration = Duration::from_secs(1 << 32);

/// What is to come, and when.
#[derive(Clone, Copy)]
pub(super) struct NextRun {
    /// With what it is put off by.
    pub(super) due: Instant,
    /// When the next run is due, as far as the rule knows; this one, if it is no question.
    pub(super) runs_at: Option<Instant>,
    /// By how much jitter puts it off.
    pub(super) jitter: Duration,
    /// Whether it is a question to the rule, and no run.
    pub(super) asks_rule: bool,
    /// Whether a handle wants it, and not the rule.
    pub(super) moved: bool,
    /// Whether it was due when it was said.
    pub(super) is_due: bool,
    /// What the wall clock says then, if the rule goes by that.
    pub(super) time: Option<SystemTime>,
}

/// What a rule has said, or a handle, before it is an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    next: Next,
    jitter: Duration,
    time: Option<SystemTime>,
    /// How far ahead the next run is, where the rule wants to be asked again.
    expected: Option<Duration>,
}

/// Puts each run off by chance, by up to so much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter(pub(crate) Duration);

impl NextRun {
    /// A run at `wanted`, put off; as wanted, if that is beyond all time.
    fn at(wanted: Instant, jitter: Duration, time: Option<SystemTime>) -> Self {
        let (due, jitter) = match wanted.checked_add(jitter) {
            Some(due) => (due, jitter),
            None => (wanted, Duration::ZERO),
        };
        let runs_at = Some(due);
        Self { due, runs_at, jitter, asks_rule: false, moved: false, is_due: false, time }
    }

    /// When the rule wanted it: from there it counts on.
    pub(super) fn due_by_rule(&self) -> Instant {
        self.due.checked_sub(self.jitter).unwrap_or(self.due)
    }
}

impl Schedule {
    /// `next` and nothing else.
    pub(super) fn exactly(next: Next) -> Self {
        Self { next, jitter: Duration::ZERO, time: None, expected: None }
    }

    /// `next`, put off by chance.
    pub(super) fn with_jitter(next: Next, jitter: Jitter) -> Self {
        Self { jitter: jitter.draw(), ..Self::exactly(next) }
    }

    /// What `rule` says.
    pub(super) fn by_rule(rule: &mut dyn Rule, last: &LastRun, jitter: Jitter) -> Self {
        let next = rule.next(last);
        let expected = if let Next::AskAfter(_) = next { rule.next_delay() } else { None };
        Self { time: rule.next_time(), expected, ..Self::with_jitter(next, jitter) }
    }

    /// Whether nothing is to come.
    pub(super) fn is_end(&self) -> bool {
        self.next == Next::End
    }

    /// As an instant, with the clock's lag where it is a delay; `None` for the end.
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
            // A clock near the last instant that can be told.
            None => {
                let longest = wheel.longest_delay();
                Err(Refusal::BeyondRange(BeyondRange { longest, unswept: false }))
            }
        }
    }
}

impl Jitter {
    /// By how much to put off a run: each number of nanoseconds is as likely.
    pub(crate) fn draw(self) -> Duration {
        if self.0.is_zero() {
            return Duration::ZERO;
        }
        // The standard library's keys for hashing are drawn by chance, and differ at each call.
        let drawn = u128::from(RandomState::new().hash_one(()));
        // 2^64 ns are 584 years: more counts as that.
        let width = u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX);
        let nanos = (drawn * (u128::from(width) + 1)) >> 64;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(width))
    }
}
