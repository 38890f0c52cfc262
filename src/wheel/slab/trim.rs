//! Trimming: giving pages whose entries are all vacant back to the system.
//!
//! The vacant stack knows nothing of pages, so that claim and release touch one word. To find
//! whole pages, the sweeper hoards vacant entries by page, and a page whose entries it has all is
//! taken out. They come from two sources: while enough entries are on the stack, the sweeper hoards
//! those whose timers it ends, which it has just touched; and it pops the stack, a slice in each
//! sweep, until that runs empty. What is left of the hoard in the end goes back. A round costs
//! O(vacant entries) and starts only when their number has doubled since the last, or the armed
//! timers are an eighth as many, so it is O(1) for each insert that made them.
//!
//! An entry that is popped gets a later generation, so that a claimer that was held up on the old
//! top of the stack fails (see [`super::vacant`]). A page with some exhausted entries stays: taking
//! it out would take the generations that its other entries still have.

#![forbid(unsafe_code)]

use super::slab_item::SlabItem;
use super::{Released, Slab};
use crate::wheel::id::Generation;
use crate::wheel::memory::Guard;

/// The vacant entries of one page that the sweeper holds.
#[derive(Debug)]
struct Hoard {
    released: Released,
    count: u32,
    newest: Generation,
}

/// The sweeper's trimming of one slab.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    pages: Vec<Option<Hoard>>,
    /// How many entries are hoarded.
    held: u64,
    /// How many entries the round may still pop; `None` between rounds.
    left: Option<u64>,
}

impl Trim {
    /// Pops and hoards up to `slice` vacant entries. `true` when the round has ended.
    pub(crate) fn advance<E: SlabItem>(
        &mut self,
        slab: &Slab<E>,
        slice: usize,
        guard: &Guard,
    ) -> bool {
        for _ in 0..slice {
            // Others release while this pops: a round pops no more than there were at its start.
            let left = self.left.get_or_insert_with(|| slab.len());
            let next = if *left > 0 { slab.pop(guard) } else { None };
            let Some(claimed) = next else {
                self.left = None;
                return true;
            };
            *left -= 1;
            let bumped = claimed.bump(self.next(slab, claimed.index));
            self.add(slab, claimed.index, bumped, guard);
        }
        false
    }

    /// Which entry the state of the one at `index` has to point to, for it to be hoarded.
    #[inline]
    pub(crate) fn next<E: SlabItem>(&mut self, slab: &Slab<E>, index: u32) -> u32 {
        self.page(slab.page_table.page_of(index)).released.next()
    }

    /// Hoards an entry: vacant, held by the sweeper alone, and its state points to
    /// [`next`](Self::next). With the last one of its page the page goes.
    #[inline]
    pub(crate) fn add<E: SlabItem>(
        &mut self,
        slab: &Slab<E>,
        index: u32,
        vacant: Generation,
        guard: &Guard,
    ) {
        let number = slab.page_table.page_of(index);
        let hoard = self.page(number);
        slab.gather(&mut hoard.released, index, vacant, guard);
        if vacant == Generation::EXHAUSTED {
            return;
        }
        hoard.count += 1;
        hoard.newest = hoard.newest.max(vacant);
        let Hoard { count, newest, .. } = *hoard;
        self.held += 1;
        // One that a resetter still holds the flag of stays, until the next round.
        let whole = count == slab.page_table.page_len();
        if whole && !slab.page_table.is_refiling(number, guard) {
            self.held -= u64::from(count);
            self.pages[number as usize] = None;
            slab.page_table.remove(number, newest, guard);
        }
    }

    /// How many entries are hoarded.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// What is hoarded goes back to the stack.
    pub(crate) fn give_back<E: SlabItem>(&mut self, slab: &Slab<E>, guard: &Guard) {
        self.held = 0;
        for mut hoard in std::mem::take(&mut self.pages).into_iter().flatten() {
            if hoard.count > 0 {
                slab.release(&mut hoard.released, guard);
            }
        }
    }

    #[inline]
    fn page(&mut self, number: u32) -> &mut Hoard {
        let number = number as usize;
        if self.pages.len() <= number {
            self.pages.resize_with(number + 1, || None);
        }
        self.pages[number].get_or_insert(Hoard {
            released: Released::NONE,
            count: 0,
            newest: Generation(0),
        })
    }
}
