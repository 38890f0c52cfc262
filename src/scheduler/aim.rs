//! [`Aim`]: what is to come of a closure, and when; and [`Jitter`], by which runs are put off.

#![forbid(unsafe_code)]

use super::rule::{LastRun, Next, Rule};
use crate::{BeyondRange, Pinned, Refusal, Wheel};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant, SystemTime};

/// What a delay counts as that no instant can tell: 2^32 s, 136 years.
const FAR: Duration = Duration::from_secs(1 << 32);

/// What is to come, and when.
#[derive(Clone, Copy)]
pub(super) struct Aim {
    /// With what it is put off by.
    pub(super) due: Instant,
    /// When the next run is due, as far as the rule knows; this one, if it is no question.
    pub(super) runs_at: Option<Instant>,
    /// By how much jitter puts it off.
    pub(super) put_off: Duration,
    /// Whether it is a question to the rule, and no run.
    pub(super) asks: bool,
    /// Whether a handle wants it, and not the rule.
    pub(super) moved: bool,
    /// Whether it was due when it was said.
    pub(super) is_due: bool,
    /// What the wall clock says then, if the rule goes by that.
    pub(super) time: Option<SystemTime>,
}

/// What a rule has said, or a handle, before it is an instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    next: Next,
    put_off: Duration,
    time: Option<SystemTime>,
    /// How far ahead the next run is, where the rule wants to be asked again.
    expected: Option<Duration>,
}

/// Puts each run off by chance, by up to so much.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Jitter(pub(crate) Duration);

impl Aim {
    /// A run at `wanted`, put off; as wanted, if that is beyond all time.
    fn later(wanted: Instant, put_off: Duration, time: Option<SystemTime>) -> Self {
        let (due, put_off) = match wanted.checked_add(put_off) {
            Some(due) => (due, put_off),
            None => (wanted, Duration::ZERO),
        };
        let runs_at = Some(due);
        Self { due, runs_at, put_off, asks: false, moved: false, is_due: false, time }
    }

    /// When the rule wanted it: from there it counts on.
    pub(super) fn wanted(&self) -> Instant {
        self.due.checked_sub(self.put_off).unwrap_or(self.due)
    }
}

impl Plan {
    /// `next` and nothing else.
    pub(super) fn plain(next: Next) -> Self {
        Self { next, put_off: Duration::ZERO, time: None, expected: None }
    }

    /// `next`, put off by chance.
    pub(super) fn put_off(next: Next, jitter: Jitter) -> Self {
        Self { put_off: jitter.draw(), ..Self::plain(next) }
    }

    /// What `rule` says.
    pub(super) fn ask(rule: &mut dyn Rule, last: &LastRun, jitter: Jitter) -> Self {
        let next = rule.next(last);
        let expected = if let Next::AskAfter(_) = next { rule.next_delay() } else { None };
        Self { time: rule.next_time(), expected, ..Self::put_off(next, jitter) }
    }

    /// Whether nothing is to come.
    pub(super) fn ends(&self) -> bool {
        self.next == Next::End
    }

    /// As an instant, with the clock's lag where it is a delay; `None` for the end.
    pub(super) fn aim<T: Send>(
        self,
        wheel: &Wheel<T>,
        pinned: &Pinned<'_, T>,
    ) -> Result<Option<Aim>, Refusal> {
        let Self { next, put_off, time, expected } = self;
        let (delay, asks) = match next {
            Next::End => return Ok(None),
            Next::At(due) => {
                let aim = Aim::later(due, put_off, time);
                return Ok(Some(Aim { is_due: aim.due <= pinned.now(), ..aim }));
            }
            Next::After(delay) => (delay, false),
            Next::AskAfter(delay) => (delay, true),
        };
        match pinned.instant_after(delay).or_else(|| pinned.instant_after(FAR)) {
            Some(due) if asks => {
                let runs_at = expected.and_then(|delay| pinned.instant_after(delay));
                Ok(Some(Aim { asks, runs_at, ..Aim::later(due, Duration::ZERO, time) }))
            }
            Some(due) => {
                let is_due = delay.is_zero() && put_off.is_zero();
                Ok(Some(Aim { is_due, ..Aim::later(due, put_off, time) }))
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
