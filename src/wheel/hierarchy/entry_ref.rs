//! [`EntryRef`]: what waits in the slots.

#![forbid(unsafe_code)]

use std::num::NonZeroU32;

/// The reference to an entry of the shard's slab, as it waits in a slot: its index, and one more,
/// so that no reference is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryRef(NonZeroU32);

impl EntryRef {
    /// The reference to the entry at `index`, which is below 2^30.
    #[inline]
    pub(crate) fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    /// The index of the entry.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }

    /// The reference as a word, which is not zero.
    #[inline]
    pub(super) fn word(self) -> u32 {
        self.0.get()
    }

    /// The reference of such a word.
    #[inline]
    pub(super) fn of_word(word: u32) -> Option<Self> {
        NonZeroU32::new(word).map(Self)
    }
}
