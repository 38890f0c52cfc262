//! The slot head: where the names of timers wait for the sweeper.
//!
//! ```text
//!  head                         ┌──────────────┐     ┌──────────────┐
//!  ┌──────────────────┬───────┐ │ next ────────┼────►│ next: null   │
//!  │ address of block │ count │►│ name 0       │     │ name 0       │
//!  │      (60)        │  (4)  │ │ name 1       │     │ …            │
//!  └──────────────────┴───────┘ │ (not yet     │     │ name 13      │
//!                               │    written)  │     └──────────────┘
//!                               └──────────────┘      all but the first block are full
//! ```
//!
//! A slot is a chain of blocks of names. To [`push`](SlotHead::push) is to reserve the next
//! place of the first block by one compare-and-swap on the head, which holds the count, and then
//! to store the name there; when the block is full, a new block with the name in it goes in
//! front. The sweeper [`take`](SlotHead::take)s the whole chain by one swap. Nothing is ever
//! popped singly.
//!
//! **Block rule.** A block belongs to the slot until the chain is taken and to the taker after
//! that; the taker frees it when all names reserved in it have been read. A thread touches a
//! block only between its reservation and its store of the name there, so the block is then
//! still alive, and no epoch is needed. That a head of the same value may by then mean a block
//! that was freed and made again at the same address is harmless: a reservation is made in the
//! block that the head names *at that moment*, whichever it is, and the `next` of a new block is
//! that same head.
//!
//! **A name reserved but not yet written** reads as zero. The taker keeps such a block
//! ([`Unwritten`]) and looks again at its next sweep; nobody waits. Its timer is not late: its
//! insert has not returned. When it goes on, it finds at its second look that the slot's turn has
//! passed and files the name once more; or, if the slot was taken out of turn or is the overdue
//! one, the taker finds the name: it looks at the blocks it keeps whenever it has announced a tick
//! ([`crate::wheel::front::swept`]), and before it rests, each time after the fence that makes it
//! see the name or the inserter see the tick or the alarm ([`crate::wheel::front::alarm`]).

use crate::sync::{AcqRel, Acquire, AtomicU32, AtomicUsize, Relaxed, Release, UnsafeCell};
use crate::wheel::prefetch::prefetch;
use std::num::NonZeroU32;
use std::ptr;

/// The name of an entry of the shard's slab, as it waits in a slot: its index, and one more, so
/// that no name is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name(NonZeroU32);

impl Name {
    /// The name of the entry at `index`, which is below 2^30.
    #[inline]
    pub(crate) fn new(index: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add(index))
    }

    /// The index of the entry.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// How many names a block holds; the head's four low bits count them. With these a block is as
/// large as a cache line.
#[cfg(not(modelled))]
pub(crate) const NAMES: usize = 14;
#[cfg(modelled)]
pub(crate) const NAMES: usize = 2;

const COUNT_MASK: usize = 15;

/// A block of names. The alignment leaves the low bits of its address to the count.
#[derive(Debug)]
#[repr(align(16))]
struct Block {
    /// Whose block comes after this one. Written before the block is published; read by the taker,
    /// who makes a pointer of it: by then the exchange that published this block has confirmed it.
    next: UnsafeCell<Head>,
    /// Zero until the reserver writes its name.
    names: [AtomicU32; NAMES],
}

/// A copied head: the address of the first block, and how many of its names are reserved.
///
/// The address is exposed and comes back as a pointer only after an exchange has confirmed that
/// the block is the slot's: a head that was read before may name memory that has been freed and
/// made a block again, and must then mean the new one. So a block keeps the head that was there
/// before it, not a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head(usize);

impl Head {
    /// No block, and so no place in it: as if it were full.
    const EMPTY: Head = Head(NAMES);

    fn new(block: *mut Block, count: usize) -> Self {
        Self(block.expose_provenance() | count)
    }

    #[inline]
    fn block(self) -> *mut Block {
        ptr::with_exposed_provenance_mut(self.0 & !COUNT_MASK)
    }

    #[inline]
    fn count(self) -> usize {
        self.0 & COUNT_MASK
    }

    /// This head with one more name reserved in the same block.
    #[inline]
    fn reserved(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether a new block is needed for one more name.
    #[inline]
    fn is_full(self) -> bool {
        self.count() >= NAMES
    }
}

/// A place in the first block of a slot, which another thread may be about to take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room(Head);

/// The head of one slot.
#[derive(Debug)]
pub(crate) struct SlotHead(AtomicUsize);

impl SlotHead {
    pub(crate) fn new() -> Self {
        Self(AtomicUsize::new(Head::EMPTY.0))
    }

    /// Whether no name waits here, as far as this thread has seen.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: a taker that finds names goes on to read them; pairs with `push`.
        Head(self.0.load(Acquire)) == Head::EMPTY
    }

    /// A place in the first block, if that has one.
    #[inline]
    pub(crate) fn room(&self) -> Option<Room> {
        // Relaxed: what the head names is not touched before the exchange confirms it.
        let head = Head(self.0.load(Relaxed));
        (!head.is_full()).then_some(Room(head))
    }

    /// Files a name there, if nobody is faster. Returns whether it did.
    #[inline]
    pub(crate) fn push_into(&self, room: Room, name: Name) -> bool {
        self.push_name(room.0, name).is_ok()
    }

    // In C, for `ci/genmc`: `slot_push`.
    /// Files a name. Returns whether a block was made for it.
    pub(crate) fn push(&self, name: Name) -> bool {
        // Relaxed: as in `room`.
        let mut head = Head(self.0.load(Relaxed));
        loop {
            let pushed = if head.is_full() {
                self.push_block(head, name).map(|()| true)
            } else {
                self.push_name(head, name).map(|()| false)
            };
            match pushed {
                Ok(made) => return made,
                Err(now) => head = now,
            }
        }
    }

    /// Reserves the next place of the first block, and writes the name there.
    #[inline]
    fn push_name(&self, head: Head, name: Name) -> Result<(), Head> {
        self.exchange(head, head.reserved())?;
        // SAFETY: by the block rule the block lives until the name reserved here has been
        // written; blocks are only ever shared.
        let block = unsafe { &*head.block() };
        // Release: the last touch of the block comes before its freeing; pairs with the Acquire
        // of `Unwritten::look`.
        block.names[head.count()].store(name.0.get(), Release);
        Ok(())
    }

    /// Puts a new block with the name in front.
    fn push_block(&self, head: Head, name: Name) -> Result<(), Head> {
        let block = Box::into_raw(Box::new(Block::with(name, head)));
        self.exchange(head, Head::new(block, 1)).inspect_err(|_| {
            // SAFETY: made just above, and not published.
            drop(unsafe { Box::from_raw(block) });
        })
    }

    #[inline]
    fn exchange(&self, head: Head, next: Head) -> Result<(), Head> {
        // AcqRel: the Release half publishes a new block, and the entry's state behind the name,
        // to the taker's swap; the Acquire half pairs with that swap, so that whoever pushes
        // after it also sees the slot marked empty and the sweep's announced tick. Relaxed on
        // failure: the caller looks again.
        match self.0.compare_exchange(head.0, next.0, AcqRel, Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(Head(now)),
        }
    }

    // In C, for `ci/genmc`: `slot_take`.
    /// Takes all names.
    pub(crate) fn take(&self) -> Chain {
        // AcqRel: the Acquire half pairs with the exchanges of `push`; the Release half shows
        // whoever pushes later what the sweeper announced before.
        let head = Head(self.0.swap(Head::EMPTY.0, AcqRel));
        Chain { block: head.block(), count: head.count() }
    }
}

impl Drop for SlotHead {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Block {
    /// A block with one name, in front of `next`.
    fn with(name: Name, next: Head) -> Self {
        let names = std::array::from_fn(|place| match place {
            0 => AtomicU32::new(name.0.get()),
            _ => AtomicU32::new(0),
        });
        Self { next: UnsafeCell::new(next), names }
    }
}

/// The size of a block, for those who count memory.
pub(crate) const BLOCK_BYTES: usize = size_of::<Block>();

/// A taken chain of blocks, read block by block.
#[derive(Debug)]
pub(crate) struct Chain {
    block: *mut Block,
    count: usize,
}

// SAFETY: by the block rule a taken chain belongs to its taker alone, on whatever thread; the
// atomics in it are all that others may still write.
unsafe impl Send for Chain {}

impl Chain {
    /// Appends the names of the next block to `names`. Returns what became of the block, or
    /// `None` at the end of the chain.
    pub(crate) fn read_block(&mut self, names: &mut Vec<Name>) -> Option<Read> {
        if self.block.is_null() {
            return None;
        }
        let block = self.block;
        // SAFETY: by the block rule the chain owns the block; it is only shared, since a reserver
        // may still be storing its name.
        let shared = unsafe { &*block };
        // SAFETY: `next` is not written after the block was published.
        self.block = shared.next.with(|next| unsafe { *next }).block();
        prefetch(self.block);
        let count = std::mem::replace(&mut self.count, NAMES);
        let mut unwritten = Unwritten { block, waiting: (1 << count) - 1 };
        Some(match unwritten.look(names) {
            true => Read::Whole,
            false => Read::Kept(unwritten),
        })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        let mut names = Vec::new();
        while self.read_block(&mut names).is_some() {}
    }
}

/// What became of a block that was read.
#[derive(Debug)]
pub(crate) enum Read {
    /// All its names were there; it is freed.
    Whole,
    /// Some names are reserved but not yet written.
    Kept(Unwritten),
}

/// A block with names that are reserved but not yet written.
#[derive(Debug)]
pub(crate) struct Unwritten {
    block: *mut Block,
    /// Which places have not been read yet.
    waiting: u32,
}

// SAFETY: as for `Chain`.
unsafe impl Send for Unwritten {}

impl Unwritten {
    /// Whether names have been written since the last look.
    pub(crate) fn has_news(&self) -> bool {
        // SAFETY: by the block rule the block belongs to this value until all names are read,
        // and then it is null; it is only ever shared.
        let block = unsafe { self.block.as_ref() };
        // Relaxed: whether there is something to look at, not the look itself.
        block.is_some_and(|block| self.places().any(|place| block.names[place].load(Relaxed) != 0))
    }

    /// The places that have not been read yet.
    #[inline]
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let waiting = self.waiting;
        (0..NAMES).filter(move |place| waiting & (1 << place) != 0)
    }

    // In C, for `ci/genmc`: `look`.
    /// Appends the names written since the last look. Returns whether that was all; if so the
    /// block is freed.
    #[inline]
    pub(crate) fn look(&mut self, names: &mut Vec<Name>) -> bool {
        if self.block.is_null() {
            return true;
        }
        // SAFETY: by the block rule the block belongs to this value until all names are read;
        // it is only ever shared.
        let block = unsafe { &*self.block };
        for place in self.places() {
            // Acquire: pairs with the Release of `push`, so that the block can be freed once
            // all its names have been read.
            if let Some(name) = NonZeroU32::new(block.names[place].load(Acquire)) {
                names.push(Name(name));
                self.waiting &= !(1 << place);
            }
        }
        if self.waiting == 0 {
            let block = std::mem::replace(&mut self.block, ptr::null_mut());
            // SAFETY: made by `Block::with`; all reserved names have been written, so by the
            // block rule nobody else touches it any more.
            drop(unsafe { Box::from_raw(block) });
        }
        self.waiting == 0
    }
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        if !self.block.is_null() {
            // SAFETY: kept blocks are dropped with the wheel, when no insert is under way any
            // more; see [`Engine`](crate::wheel::engine::Engine).
            drop(unsafe { Box::from_raw(self.block) });
        }
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::{NAMES, Name, Read, SlotHead};

    #[test]
    fn every_name_pushed_is_taken_once() {
        let slot = SlotHead::new();
        let total = u32::try_from(NAMES * 3 + 1).unwrap();
        let blocks = (0..total).filter(|&index| slot.push(Name::new(index))).count();
        assert_eq!(blocks, 4);
        let mut chain = slot.take();
        let mut names = Vec::new();
        while let Some(read) = chain.read_block(&mut names) {
            assert!(matches!(read, Read::Whole));
        }
        names.sort_unstable();
        assert_eq!(names, (0..total).map(Name::new).collect::<Vec<_>>());
        assert!(slot.is_empty() && slot.take().read_block(&mut names).is_none());
    }
}
