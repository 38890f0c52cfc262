//! [`LetterBounds`], the bounds of the dead letters of a store.

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, millis_up};
use std::time::Duration;

/// The bounds of the dead letters of a store. By default there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LetterBounds {
    /// The number of letters that are kept.
    pub(crate) most: u64,
    /// How long a letter is kept.
    pub(crate) age: Millis,
}

impl LetterBounds {
    /// The maximum number of letters that are deleted when a letter is written. It is more than
    /// one, so that a store that was unbounded before shrinks.
    pub(crate) const AT_ONCE: usize = 2;

    /// The maximum number of the oldest letters that are read when a letter is written. Letters
    /// without an age are skipped.
    pub(crate) const AHEAD: usize = 16;

    pub(crate) fn new(most: u64, age: Duration) -> Self {
        Self { most, age: millis_up(age) }
    }

    pub(crate) fn is_unbounded(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if the oldest of `count` letters, which was given up at `died`, is to be
    /// deleted.
    pub(crate) fn exclude(&self, count: u64, died: Millis, now: Millis) -> bool {
        count > self.most || died < now.saturating_sub(self.age)
    }
}

impl Default for LetterBounds {
    fn default() -> Self {
        Self { most: u64::MAX, age: Millis::MAX }
    }
}
