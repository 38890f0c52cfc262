//! [`Settings`]: the limits of a stream.

#![forbid(unsafe_code)]

use super::error::Limit;
use crate::future::SleepWaker;
use crate::{Wheel, WheelInstant};
use std::time::{Duration, Instant};

/// One half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Reads,
    /// Writes, flushes and shutdowns.
    Writes,
}

/// A limit, and how often it was set. Setting the same limit again also restarts a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) limit: Option<Duration>,
    version: u32,
}

impl Setting {
    pub(super) fn set(&mut self, limit: Option<Duration>) {
        *self = Self { limit, version: self.version.wrapping_add(1) };
    }
}

/// All limits of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) read: Setting,
    pub(super) write: Setting,
    pub(super) idle: Setting,
    pub(super) deadline: Option<WheelInstant>,
    /// The number of pauses in progress.
    pauses: u32,
    /// The end of the last pause.
    pub(super) resumed: Option<Instant>,
    /// The limit for the time between two pauses.
    keep_alive: Option<Duration>,
    /// The time when that limit passes, unless a pause is in progress.
    unused_until: Option<WheelInstant>,
}

impl Settings {
    /// Returns the setting that applies to one direction only.
    pub(super) fn own(&mut self, direction: Direction) -> &mut Setting {
        match direction {
            Direction::Reads => &mut self.read,
            Direction::Writes => &mut self.write,
        }
    }

    pub(super) fn pause(&mut self) {
        self.pauses += 1;
        self.unused_until = None;
    }

    /// Ends a pause. Returns `true` if a limit has started that no waiting task knows of.
    pub(super) fn resume(&mut self, now: Instant, wheel: &Wheel<SleepWaker>) -> bool {
        self.pauses -= 1;
        self.resumed = Some(now);
        self.set_keep_alive(self.keep_alive, wheel);
        self.unused_until.is_some()
    }

    /// Sets the limit for the time between two pauses, and starts it unless a pause is in progress.
    pub(super) fn set_keep_alive(&mut self, limit: Option<Duration>, wheel: &Wheel<SleepWaker>) {
        self.keep_alive = limit;
        let limit = limit.filter(|_| !self.is_paused());
        self.unused_until = limit.map(|limit| wheel.wheel_instant_after(limit));
    }

    /// Returns when all operations begin to fail, and the limit that passes then: the deadline or
    /// the keep-alive timeout, whichever is sooner.
    pub(super) fn cutoff(&self) -> Option<(WheelInstant, Limit)> {
        let deadline = self.deadline.map(|at| (at, Limit::Deadline));
        let unused = self.unused_until.map(|at| (at, Limit::KeepAlive));
        deadline.into_iter().chain(unused).min_by_key(|&(at, _)| at)
    }

    /// Returns `true` while the limits for reads and for silence are suspended.
    pub(super) fn is_paused(&self) -> bool {
        self.pauses > 0
    }
}
