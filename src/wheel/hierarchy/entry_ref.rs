//! [`EntryRef`]: the content of the slots.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

/// A reference to an entry of the shard's slab, as it is stored in a slot. It is the index plus
/// one, so that no reference is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryRef(NonZeroU32);

impl EntryRef {
    /// Creates the reference to the entry at `index`, which is below 2^30.
    #[inline]
    pub(crate) fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    /// Returns the index of the entry.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }

    /// Returns the reference as a word, which is not zero.
    #[inline]
    pub(super) fn word(self) -> u32 {
        self.0.get()
    }

    /// Returns the reference of such a word.
    #[inline]
    pub(super) fn of_word(word: u32) -> Option<Self> {
        NonZeroU32::new(word).map(Self)
    }
}
