//! [`PageLayout`]: the entries of each page.
//!
//! | page | 0 | 1 | 2 | … | full size |
//! |---|---|---|---|---|---|
//! | entries | 2 | 4 | 8 | … | 256 or more |
//!
//! Each page has twice as many entries as the one before until they have the full size. A wheel
//! with few timers therefore takes little memory. Each of these small pages is a whole chunk of
//! the [`memory`](crate::wheel::memory).

#![forbid(unsafe_code)]

use crate::wheel::memory::FIRST_BITS;

/// The sizes of the pages of a slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLayout {
    /// A page of the full size has `2^bits` entries.
    bits: u32,
}

/// The place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryPlace {
    /// The number of its page.
    pub(crate) page: u32,
    /// Its offset there.
    pub(crate) offset: u32,
    /// The number of entries of that page.
    pub(crate) len: u32,
}

/// The number of entries of the first page. Counted from minus that, the pages of each size begin
/// at a multiple of their size.
const FIRST: u32 = 1 << FIRST_BITS;

impl PageLayout {
    /// Creates the layout whose pages grow to `2^bits` entries, at least two.
    pub(crate) fn new(bits: u32) -> Self {
        debug_assert!(bits >= FIRST_BITS);
        Self { bits }
    }

    /// Returns the number of entries of a page of the full size.
    #[inline]
    pub(crate) fn full_len(self) -> u32 {
        1 << self.bits
    }

    /// Returns the place of the entry at `index`.
    #[inline]
    pub(crate) fn place_of(self, index: u32) -> EntryPlace {
        let position = index + FIRST;
        let bits = position.ilog2().min(self.bits);
        let page = (position >> bits) + bits - FIRST_BITS - 1;
        EntryPlace { page, offset: position & ((1 << bits) - 1), len: 1 << bits }
    }

    /// Returns the number of the page that holds `index`.
    #[inline]
    pub(crate) fn page_of(self, index: u32) -> u32 {
        self.place_of(index).page
    }

    /// Returns the index of the first entry of a page.
    #[inline]
    pub(crate) fn first_of(self, page: u32) -> u32 {
        let bits = self.bits_of(page);
        ((page + FIRST_BITS + 1 - bits) << bits) - FIRST
    }

    /// Returns the number of entries of a page.
    #[inline]
    pub(crate) fn len_of(self, page: u32) -> u32 {
        1 << self.bits_of(page)
    }

    #[inline]
    fn bits_of(self, page: u32) -> u32 {
        (page + FIRST_BITS).min(self.bits)
    }

    /// Returns the number of pages whose entries all have indices below `end`, a power of two. The
    /// last index is on none of them.
    pub(crate) fn pages_below(self, end: u32) -> u32 {
        self.page_of(end - FIRST)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{EntryPlace, PageLayout};

    #[test]
    fn pages_grow_to_their_full_size_and_leave_no_gap() {
        for bits in [1, 2, 3, 8, 13] {
            let layout = PageLayout::new(bits);
            let (mut index, mut lens) = (0, Vec::new());
            for number in 0..40 {
                assert_eq!(layout.first_of(number), index);
                let len = layout.len_of(number);
                for offset in 0..len {
                    let place = EntryPlace { page: number, offset, len };
                    assert_eq!(layout.place_of(index + offset), place);
                }
                lens.push(len);
                index += len;
            }
            assert!(lens.is_sorted() && lens[0] == 2 && lens[39] == layout.full_len());
        }
    }

    #[test]
    fn the_last_index_is_on_no_page() {
        for bits in [1, 2, 8, 13] {
            let layout = PageLayout::new(bits);
            let end = layout.first_of(layout.pages_below(1 << 30));
            assert_eq!(end, (1 << 30) - layout.len_of(0));
        }
    }
}
