//! [`LetterBounds`], the bounds of the dead letters of a store.

#![forbid(unsafe_code)]

use super::clock::{Millis, millis_up};
use std::time::Duration;

/// The bounds of the dead letters of a store. By default there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LetterBounds {
    /// The number of letters that are kept.
    pub(super) most: u64,
    /// The time for which a letter is kept.
    pub(super) age: Millis,
}

impl LetterBounds {
    /// The number of letters that are deleted when one is written, at most. It is more than one, so
    /// that a store that was unbounded before shrinks.
    pub(super) const AT_ONCE: usize = 2;

    /// The number of the oldest letters that are read when one is written, at most. Those that have
    /// no age are passed over.
    pub(super) const AHEAD: usize = 16;

    pub(super) fn new(most: u64, age: Duration) -> Self {
        Self { most, age: millis_up(age) }
    }

    pub(super) fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the oldest of `count` letters, which was given up at `died`, is to be
    /// deleted.
    pub(super) fn exclude(&self, count: u64, died: Millis, now: Millis) -> bool {
        count > self.most || died < now.saturating_sub(self.age)
    }
}

impl Default for LetterBounds {
    fn default() -> Self {
        Self { most: u64::MAX, age: Millis::MAX }
    }
}
