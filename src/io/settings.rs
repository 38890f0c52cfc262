//! [`Settings`]: the limits of a stream.

#![forbid(unsafe_code)]

use crate::WheelInstant;
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
    /// The time at which the last pause ended.
    pub(super) resumed: Option<Instant>,
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
    }

    pub(super) fn resume(&mut self, now: Instant) {
        self.pauses -= 1;
        self.resumed = Some(now);
    }

    /// Returns `true` while the limits for reads and for silence are suspended.
    pub(super) fn is_paused(&self) -> bool {
        self.pauses > 0
    }
}
