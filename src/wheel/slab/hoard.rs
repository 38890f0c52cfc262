//! [`Hoard`]: the vacant entries that the sweeper collects by page. *Trimming* a slab returns the
//! pages that are completely vacant to the system.
//!
//! The vacant stack knows nothing of pages, so that claim and release touch one word. To find whole
//! pages, the sweeper hoards vacant entries by page, and removes each page whose entries it has
//! all. The entries come from two sources:
//!
//! - while enough entries are on the stack, the sweeper hoards those whose timers it ends, and the
//!   blocks of their references, which it has just touched;
//! - it pops the stack, a slice in each sweep, until that is empty.
//!
//! The rest of the hoard goes back to the stack in the end. A round costs O(vacant entries) and
//! starts only if their number has doubled since the last round, or the armed timers are an eighth
//! as many. It is therefore O(1) for each insert that made them.
//!
//! An entry that is popped gets a later generation, so that a claimer that stalled with the old top
//! of the stack fails (see [`super::vacant`]). A page with some exhausted entries stays, because
//! removing it would discard the remaining generations of its other entries.

#![forbid(unsafe_code)]

use super::page_table::SlabItem;
use super::{Claimed, Released, Slab};
use crate::wheel::id::Generation;
use crate::wheel::memory::Guard;

/// The vacant entries of one page that the sweeper holds.
#[derive(Debug)]
struct HoardedPage {
    released: Released,
    count: u32,
    newest: Generation,
}

/// The vacant entries of one slab that the sweeper holds, by page.
#[derive(Debug, Default)]
pub(crate) struct Hoard {
    pages: Vec<Option<HoardedPage>>,
    /// The number of hoarded entries.
    held: u64,
    /// The number of entries that the round may still pop. `None` between rounds.
    left: Option<u64>,
}

impl Hoard {
    /// Returns `true` if no round is in progress.
    pub(crate) fn is_between_rounds(&self) -> bool {
        self.left.is_none()
    }

    /// Pops and hoards up to `slice` vacant entries. Returns `true` when the round has ended.
    pub(crate) fn advance<E: SlabItem>(
        &mut self,
        slab: &Slab<E>,
        slice: usize,
        guard: &Guard,
    ) -> bool {
        for _ in 0..slice {
            // Other threads release entries while this pops, so a round pops no more than there
            // were at its start.
            let left = self.left.get_or_insert_with(|| slab.len());
            let next = if *left > 0 { slab.pop(guard) } else { None };
            let Some(claimed) = next else {
                self.left = None;
                return true;
            };
            *left -= 1;
            self.add_claimed(slab, &claimed, guard);
        }
        false
    }

    /// Hoards a vacant entry that the sweeper holds exclusively.
    pub(crate) fn add_held<E: SlabItem>(&mut self, slab: &Slab<E>, index: u32, guard: &Guard) {
        if let Some(claimed) = slab.claimed(index, guard) {
            self.add_claimed(slab, &claimed, guard);
        }
    }

    fn add_claimed<E: SlabItem>(
        &mut self,
        slab: &Slab<E>,
        claimed: &Claimed<'_, E>,
        guard: &Guard,
    ) {
        let bumped = claimed.bump(self.next(slab, claimed.index));
        self.add(slab, claimed.index, bumped, guard);
    }

    /// Returns the entry that the state of `index` has to reference for `index` to be hoarded.
    #[inline]
    pub(crate) fn next<E: SlabItem>(&mut self, slab: &Slab<E>, index: u32) -> u32 {
        self.page(slab.page_table.layout().page_of(index)).released.next()
    }

    /// Hoards an entry, which is vacant and held by the sweeper alone, and whose state points to
    /// [`next`](Self::next). With the last entry of a page the page is removed.
    #[inline]
    pub(crate) fn add<E: SlabItem>(
        &mut self,
        slab: &Slab<E>,
        index: u32,
        vacant: Generation,
        guard: &Guard,
    ) {
        let number = slab.page_table.layout().page_of(index);
        let hoard = self.page(number);
        slab.gather(&mut hoard.released, index, vacant, guard);
        if vacant == Generation::EXHAUSTED {
            return;
        }
        hoard.count += 1;
        hoard.newest = hoard.newest.max(vacant);
        let HoardedPage { count, newest, .. } = *hoard;
        self.held += 1;
        // A page with an entry whose flag a resetter still holds stays until the next round. One
        // whose memory cannot be given back stays anyway.
        let whole = count == slab.page_table.layout().len_of(number);
        let leaves =
            || !slab.page_table.stays(number) && !slab.page_table.is_refiling(number, guard);
        if whole && leaves() {
            self.held -= u64::from(count);
            self.pages[number as usize] = None;
            slab.page_table.remove(number, newest, guard);
        }
    }

    /// Returns the number of hoarded entries.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Puts the hoarded entries back on the stack.
    pub(crate) fn give_back<E: SlabItem>(&mut self, slab: &Slab<E>, guard: &Guard) {
        self.held = 0;
        for mut hoard in std::mem::take(&mut self.pages).into_iter().flatten() {
            if hoard.count > 0 {
                slab.release(&mut hoard.released, guard);
            }
        }
    }

    #[inline]
    fn page(&mut self, number: u32) -> &mut HoardedPage {
        let number = number as usize;
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        self.pages[number].get_or_insert(HoardedPage {
            released: Released::NONE,
            count: 0,
            newest: Generation(0),
        })
    }
}
