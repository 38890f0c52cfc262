//! Trimming: giving pages whose entries are all vacant back to the allocator.
//!
//! The vacant stack knows nothing of pages, so that claim and release touch one word. To find
//! whole pages, the sweeper pops vacant entries, a slice in each sweep, and hoards them by page;
//! a page whose entries it has all is taken out, and when the stack runs empty what is left of
//! the hoard goes back. A round costs O(vacant entries) and starts only when their number has
//! doubled since the last, so it is O(1) for each insert that made them.
//!
//! An entry that passes through the hoard gets a later generation, so that a claimer that was
//! held up on the old top of the stack fails (see [`super::vacant`]). A page with some worn
//! entries stays: taking it out would take the generations that its other entries still have.

#![forbid(unsafe_code)]

use super::vacant::VacantHead;
use super::{Released, Slab};
use crate::id::Generation;
use crate::reclaim::Guard;

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
    /// How many entries the round may still pop; `None` between rounds.
    left: Option<u64>,
}

impl Trim {
    /// Hoards up to `slice` vacant entries. `true` when the round has ended.
    pub(crate) fn advance<T>(&mut self, slab: &Slab<T>, slice: usize, guard: &Guard) -> bool {
        for _ in 0..slice {
            // Others release while this pops: a round pops no more than there were at its start.
            let left = self.left.get_or_insert_with(|| slab.len());
            let next = if *left > 0 { slab.pop(guard) } else { None };
            let Some(claimed) = next else {
                self.give_back(slab, guard);
                return true;
            };
            *left -= 1;
            let fresh = claimed.vacant.generation().next().next();
            let page = slab.directory.page_of(claimed.index);
            let hoard = self.page(page);
            claimed.entry.state.chain(fresh, hoard.released.next());
            slab.gather(&mut hoard.released, claimed.index, fresh, guard);
            hoard.count += u32::from(fresh != Generation::WORN);
            hoard.newest = hoard.newest.max(fresh);
            if hoard.count == slab.directory.page_len() {
                let newest = hoard.newest;
                self.pages[page as usize] = None;
                slab.directory.remove(page, newest, guard);
            }
        }
        false
    }

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

    /// Gives the pages that are not whole back to the stack.
    fn give_back<T>(&mut self, slab: &Slab<T>, guard: &Guard) {
        self.left = None;
        for mut hoard in std::mem::take(&mut self.pages).into_iter().flatten() {
            if hoard.released.top != VacantHead::EMPTY {
                slab.release(&mut hoard.released, guard);
            }
        }
    }
}
