//! The page table: the installed pages of entries, and the generation that each of them starts
//! with. An entry of a page is a [`SlabItem`].
//!
//! ```text
//! chunks ─► [slot]                         chunk c has 2^c slots, made when first needed
//!           [slot][slot]                   and kept to the end (16 bytes a page)
//!           [slot][slot][slot][slot]
//!              │
//!              ├─ page ─► entries          null while the page is not there
//!              ├─ base                     the generation its next incarnation starts from
//!              └─ retired                  how many of its entries are exhausted
//! ```
//!
//! **Page rule.** A page in the page table is complete. It is removed only by a thread that holds
//! all of its entries, vacant and exclusively. Its memory is reclaimed as
//! [`memory`](crate::wheel::memory) describes, and a reference found under a guard is valid while
//! the guard lives. A late reader sees vacant generations there, which no id matches. They are
//! those that were there last or, where entries stay in place, zeros.
//!
//! **No thread changes the content of a removed page**, because the page is zeroed. As a rule no
//! thread tries to, since its memory would come back for nothing. These are the threads that could:
//!
//! * A thread that ends, resets or arms a timer exchanges the state of an armed generation, or has
//!   claimed the entry. Neither exists on such a page. (The exchange of a thread that has read the
//!   state before fails.)
//! * The holder of the refiling flag writes `next_visit` and clears the flag late, whatever the
//!   entry holds by then. A page with such an entry is not removed
//!   ([`is_refiling`](PageTable::is_refiling)) until it is exhausted, after which it is never
//!   installed again. A flag that has been zeroed and set again would otherwise be cleared by the
//!   wrong thread.
//! * The sweeper visits a reference to an entry. It drops a reference to a
//!   [pristine](EntryState::is_pristine) entry without a write.
//!
//! **Base rule.** `base` is written, and the entries are zeroed, before the page is removed. `base`
//! is read, and the states are written, only after the page has been installed, by the thread that
//! installed it or by those that took its [remainder](super::page_remainder). They hold those
//! entries exclusively, and until all have been released no thread removes the page. No generation
//! is therefore ever used twice, however the installs and removals of other threads interleave. The
//! first `base` of all pages is the one with which the slab was [made](PageTable::new).

use super::magazine::Rounds;
use super::page_layout::{EntryPlace, PageLayout};
use super::state::{AtomicEntryState, EntryState};
use crate::panics::DropEach;
use crate::sync::{AcqRel, Acquire, AtomicPtr, AtomicU32, Relaxed, Release};
use crate::wheel::bits::in_chunks;
use crate::wheel::id::{Generation, TimerId};
use crate::wheel::memory::{Guard, Places, Zeroable, boxed_slice, try_boxed};
use std::marker::PhantomData;
use std::ptr;

/// Enough chunks for all indices at the smallest page size.
const CHUNKS: usize = 30;

/// The reason why there is no vacant entry and none can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEntry {
    /// All indices are in use, or exhausted.
    UsedUp,
    /// There is no memory for another page.
    OutOfMemory,
}

/// The place of one page, which may be absent.
#[derive(Debug)]
struct PageSlot<E> {
    page: AtomicPtr<E>,
    base: AtomicU32,
    retired: AtomicU32,
}

/// All pages of a shard's slab.
#[derive(Debug)]
pub(crate) struct PageTable<E: SlabItem> {
    places: Places<E>,
    chunks: [AtomicPtr<PageSlot<E>>; CHUNKS],
    layout: PageLayout,
    /// The generation that entries start with.
    first: Generation,
    /// The number at which a search for an absent page starts. Pages below it are, or recently
    /// were, installed.
    first_absent: AtomicU32,
    /// The number of entries on installed pages.
    entries: AtomicU32,
    owns: PhantomData<Box<E>>,
}

impl<E: SlabItem> PageTable<E> {
    /// Creates a table without pages. Its pages will grow to `2^page_bits` entries or more, whose
    /// generations start at `first`.
    pub(crate) fn new(page_bits: u32, first: Generation) -> Self {
        let layout = PageLayout::new(Places::<E>::page_bits(page_bits));
        Self {
            places: Places::new(layout.full_len()),
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            layout,
            first,
            first_absent: AtomicU32::new(0),
            entries: AtomicU32::new(0),
            owns: PhantomData,
        }
    }

    /// Returns the sizes of the pages.
    #[inline]
    pub(crate) fn layout(&self) -> PageLayout {
        self.layout
    }

    /// Returns the present number of entries, vacant or not.
    pub(crate) fn len(&self) -> u32 {
        // Relaxed: for statistics.
        self.entries.load(Relaxed)
    }

    /// Returns the entry at `index` if its page is installed. It may return an entry even if it is
    /// not.
    #[inline]
    pub(crate) fn entry<'g>(&'g self, index: u32, guard: &'g Guard) -> Option<&'g E> {
        let page = || {
            let EntryPlace { page, offset, .. } = self.layout.place_of(index);
            (self.page(page), offset)
        };
        self.places.get(index, page, guard)
    }

    /// Installs a page. The caller holds its entries exclusively, and has to
    /// [reinitialise](Self::reinit) them before they are used. Returns the index of the first, and
    /// their generation.
    pub(crate) fn install(&self, guard: &Guard) -> Result<(u32, Generation), NoEntry> {
        loop {
            let number = self.absent_page().ok_or(NoEntry::UsedUp)?;
            let slot = self.slot_or_make(number).ok_or(NoEntry::OutOfMemory)?;
            let (first, len) = (self.layout.first_of(number), self.layout.len_of(number));
            let page = self.places.make_page(first, len).ok_or(NoEntry::OutOfMemory)?;
            // AcqRel:
            // - the Release half publishes, to `page`, entries as `make_page` returns them;
            // - the Acquire half pairs with the Release of `remove`, so that `base` is seen, and
            //   that the entries have been zeroed.
            if slot.page.compare_exchange(ptr::null_mut(), page, AcqRel, Relaxed).is_err() {
                self.places.unmake_page(page, len);
                continue;
            }
            // Relaxed: for statistics.
            self.entries.fetch_add(len, Relaxed);
            // Relaxed: ordered by the exchange above, by I5.
            let base = Generation(slot.base.load(Relaxed));
            if base >= Generation::EXHAUSTED {
                // The previous page of this number was exhausted while this one was being made.
                self.remove(number, base, guard);
                continue;
            }
            return Ok((first, base));
        }
    }

    /// Creates the memory of an entry, on no page.
    #[cfg(all(modelled, not(crossbeam_loom)))]
    pub(crate) fn materialise(&self, index: u32) {
        assert!(self.places.make_page(index, 1).is_some(), "a model has memory");
    }

    /// Removes a page. `base` is the greatest generation among its entries.
    ///
    /// The caller holds all entries of the page, vacant and exclusively.
    pub(crate) fn remove(&self, number: u32, base: Generation, guard: &Guard) {
        let Some(slot) = self.slot(number) else {
            return;
        };
        // Relaxed: published by the store below, by I5.
        slot.base.store(base.0, Relaxed);
        let (page, len) = (self.page(number), self.layout.len_of(number));
        if page.is_null() {
            return;
        }
        // SAFETY: made by `make_page`. The caller holds its entries exclusively, so they are vacant
        // and by the module's rules no thread changes them, unless the page is exhausted.
        unsafe { self.places.zero(page, len) };
        // Release: publishes `base`, and that the entries have been zeroed, to `install`. No other
        // thread removes the page, because it is the caller's.
        slot.page.store(ptr::null_mut(), Release);
        // Relaxed: for statistics.
        self.entries.fetch_sub(len, Relaxed);
        // Relaxed: a hint for the start of a search.
        self.first_absent.fetch_min(number, Relaxed);
        // SAFETY: as above; the page has been removed.
        unsafe { self.places.reclaim(page, len, guard) };
    }

    /// Returns `true` if nothing is gained when the page is removed, because its memory stays.
    pub(crate) fn stays(&self, number: u32) -> bool {
        !self.places.is_returnable(self.layout.len_of(number))
    }

    /// Returns `true` if the refiling flag of one of the page's entries is set.
    ///
    /// The caller holds them, vacant and exclusively, so a result of `false` stays valid.
    pub(crate) fn is_refiling(&self, number: u32, guard: &Guard) -> bool {
        self.entries(number, guard).any(|(_, entry)| entry.state().load().is_refiling())
    }

    /// Counts the entry at `index` as exhausted. With the last entry of a page the page is removed.
    pub(crate) fn retire(&self, index: u32, guard: &Guard) {
        let number = self.layout.page_of(index);
        let Some(slot) = self.slot(number) else {
            return;
        };
        // AcqRel: the last thread to count acts for all the others, which are done with their
        // entries.
        if slot.retired.fetch_add(1, AcqRel) + 1 == self.layout.len_of(number) {
            self.remove(number, Generation::EXHAUSTED, guard);
        }
    }

    /// Calls `visit` for each entry of each page, with its index.
    pub(crate) fn for_each(&self, guard: &Guard, mut visit: impl FnMut(u32, &E)) {
        for number in (0..).take_while(|&number| self.slot(number).is_some()) {
            self.entries(number, guard).for_each(|(index, entry)| visit(index, entry));
        }
    }

    /// Returns the lowest absent page whose generations are not used up.
    fn absent_page(&self) -> Option<u32> {
        // Relaxed: a hint; the exchange in `install` decides whether the page is absent.
        let start = self.first_absent.load(Relaxed);
        let end = self.layout.pages_below(TimerId::INDICES);
        let absent = (start..end).chain(0..start.min(end)).find(|&number| {
            self.slot(number).is_none_or(|slot| {
                // Relaxed: as above.
                let used_up = slot.base.load(Relaxed) >= Generation::EXHAUSTED.0;
                // Relaxed: as above.
                slot.page.load(Relaxed).is_null() && !used_up
            })
        })?;
        // Relaxed: a hint. If a page below has been removed meanwhile, it is found at the latest
        // when the search has gone round.
        let _ = self.first_absent.compare_exchange(start, absent, Relaxed, Relaxed);
        Some(absent)
    }

    /// Gives entries of an installed page a generation that was not used before, and chains them in
    /// the order of their indices. The caller holds them exclusively.
    pub(crate) fn reinit(&self, Rounds { top, count }: Rounds, guard: &Guard) {
        let EntryPlace { page, offset, len } = self.layout.place_of(top);
        let Some(slot) = self.slot(page) else {
            return;
        };
        // Relaxed: ordered by the exchange that installed the page, or by the one that took the
        // entries; by the base rule no thread writes it now.
        let base = slot.base.load(Relaxed);
        let (first, end) = (offset as usize, (offset + count) as usize);
        let entries = self.entries_in(slot, len, guard).get(first..end);
        for (index, entry) in (top..).zip(entries.unwrap_or_default()) {
            // The entry may not have been zeroed, if the system refused to take the memory back.
            // The sweeper's later writes to it are not ordered before a store, so `next_visit` must
            // not describe a reference that the sweeper has dropped.
            entry.reinit();
            entry.state().put(EntryState::vacant(Generation(base), index + 1));
        }
    }

    /// Iterates over the entries of a page, with their indices.
    fn entries<'g>(&'g self, number: u32, guard: &'g Guard) -> impl Iterator<Item = (u32, &'g E)> {
        let slot = self.slot(number);
        let entries = slot.map(|slot| self.entries_in(slot, self.layout.len_of(number), guard));
        (self.layout.first_of(number)..).zip(entries.unwrap_or_default())
    }

    /// Returns the entries of the page in `slot`, which has `len` of them when it is there.
    #[inline]
    fn entries_in<'g>(&'g self, slot: &PageSlot<E>, len: u32, guard: &'g Guard) -> &'g [E] {
        // Acquire: as in `page`.
        let page = slot.page.load(Acquire);
        if page.is_null() {
            return &[];
        }
        // SAFETY: made by `make_page` with this length, and found under the guard.
        unsafe { self.places.page(page, len, guard) }
    }

    /// Returns the address of the page, or null if it is absent.
    #[inline]
    fn page(&self, number: u32) -> *mut E {
        // Acquire: pairs with the Release of `install`, so that the page's entries are seen.
        self.slot(number).map_or(ptr::null_mut(), |slot| slot.page.load(Acquire))
    }

    #[inline]
    fn slot(&self, number: u32) -> Option<&PageSlot<E>> {
        let (chunk, offset) = in_chunks(number, 0);
        // Acquire: pairs with the Release of `slot_or_make`, so that the chunk's slots are seen.
        let slots = self.chunks[chunk].load(Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: chunk `c` has `2^c` slots and lives as long as the page table; `in_chunks`
        // returns an offset below that.
        let slot = unsafe { slots.add(offset) };
        // SAFETY: as above; slots are only ever shared.
        Some(unsafe { &*slot })
    }

    /// Returns the slot of a page, or `None` if there is no memory for the slots of that many
    /// pages.
    fn slot_or_make(&self, number: u32) -> Option<&PageSlot<E>> {
        loop {
            if let Some(slot) = self.slot(number) {
                return Some(slot);
            }
            let (chunk, _) = in_chunks(number, 0);
            let slots = try_boxed(1 << chunk, || PageSlot::<E> {
                page: AtomicPtr::new(ptr::null_mut()),
                base: AtomicU32::new(self.first.0),
                retired: AtomicU32::new(0),
            })?;
            // Release on success: publishes the chunk's slots; pairs with the Acquire of `slot`.
            // Relaxed on failure: the loop checks again.
            if self.chunks[chunk]
                .compare_exchange(ptr::null_mut(), slots, Release, Relaxed)
                .is_err()
            {
                // SAFETY: made just above as a boxed slice of this length and not published.
                drop(unsafe { boxed_slice(slots, 1 << chunk) });
            }
        }
    }
}

impl<E: SlabItem> Drop for PageTable<E> {
    fn drop(&mut self) {
        // If the drop of a value panics, this panics again only when all memory has been freed,
        // because it is dropped last. (Mapped memory goes after it in any case, together with
        // `places`.)
        let mut values = DropEach::default();
        let mut numbers = 0..;
        for (chunk, slots) in self.chunks.iter().enumerate() {
            // Relaxed: `&mut self` already orders everything before this.
            let slots = slots.load(Relaxed);
            if slots.is_null() {
                continue;
            }
            // SAFETY: `slot_or_make` made the chunk with this length, and the page table is being
            // dropped.
            let slots = unsafe { boxed_slice(slots, 1 << chunk) };
            for (slot, number) in slots.iter().zip(&mut numbers) {
                // Relaxed: as above.
                let page = slot.page.load(Relaxed);
                if page.is_null() {
                    continue;
                }
                let len = self.layout.len_of(number);
                for offset in 0..len as usize {
                    // SAFETY: the page has that many entries.
                    let entry = unsafe { page.add(offset) };
                    // SAFETY: as above; entries are only ever shared.
                    let entry = unsafe { &*entry };
                    // SAFETY: with `&mut self` no other thread accesses it, and it is not accessed
                    // again.
                    unsafe { entry.drop_value(&mut values) };
                }
                // SAFETY: made by `make_page`, and the page table is being dropped.
                unsafe { self.places.free(page, len) };
            }
        }
    }
}

/// An item of a slab: a timer ([`Entry`](super::entry::Entry)), or a block of references
/// ([`Block`](crate::wheel::hierarchy::block::Block)).
pub(crate) trait SlabItem: Zeroable {
    /// Returns the state, which shows whether the item is vacant, and the vacant item after it.
    fn state(&self) -> &AtomicEntryState;

    /// Forgets what the item records beside its state. Called by the thread that holds it
    /// exclusively, vacant, on a newly installed page.
    fn reinit(&self);

    /// Drops the value, if it has one.
    ///
    /// # Safety
    ///
    /// - The slab is being dropped. No other thread accesses the item, and the caller does not
    ///   access it again.
    unsafe fn drop_value(&self, values: &mut DropEach);
}
