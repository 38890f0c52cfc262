//! Pages from the allocator, which are freed by epoch-based reclamation.
//!
//! A thread looks an entry up under a [`Guard`]. A removed page is freed once every guard of that
//! time has been dropped (`crossbeam-epoch`; Fraser, *Practical lock-freedom*, 2004).

use super::{Zeroable, boxed_slice, try_boxed};
use std::marker::PhantomData;

pub(crate) use crossbeam_epoch::{Guard, Guard as Pin, pin};

/// The first page has `2^FIRST_BITS` entries.
pub(crate) const FIRST_BITS: u32 = 1;

/// Frees retired pages, as far as the guards of other threads permit. The caller must hold no
/// guard.
///
/// Nothing else would. The epoch advances, and its garbage is examined, only as threads pin, and no
/// thread pins for an idle wheel. Each step advances the epoch by at most one and frees some
/// hundreds of pages. Two epochs must pass.
#[cfg(not(modelled))]
pub(crate) fn collect() {
    const STEPS: usize = 16;
    for _ in 0..STEPS {
        pin().flush();
    }
}

/// Does nothing. A model collects where it wants to, because each pin multiplies its executions.
#[cfg(modelled)]
pub(crate) fn collect() {}

/// The entries of a slab, by index. Each page is at the address in its slot of the page table.
#[derive(Debug)]
pub(crate) struct Places<P: Zeroable> {
    of: PhantomData<P>,
}

impl<P: Zeroable> Places<P> {
    /// Creates storage for entries in pages of up to `_page_len`.
    pub(crate) fn new(_page_len: u32) -> Self {
        Self { of: PhantomData }
    }

    /// Returns the number of bits of the index within a page, which is the number asked for.
    pub(crate) fn page_bits(asked_for: u32) -> u32 {
        asked_for
    }

    /// Returns the entry that `page` finds, as the address of its page and its offset there. The
    /// address is null if the page is absent.
    #[inline]
    pub(crate) fn get<'g>(
        &'g self,
        _index: u32,
        page: impl FnOnce() -> (*mut P, u32),
        _guard: &'g Guard,
    ) -> Option<&'g P> {
        let (page, offset) = page();
        if page.is_null() {
            return None;
        }
        // SAFETY: by the page rule of the page table, the page outlives the guard, and the offset
        // is below its length.
        let place = unsafe { page.add(offset as usize) };
        // SAFETY: as above; entries are only ever shared, never borrowed mutably.
        Some(unsafe { &*place })
    }

    /// Returns the entries of a page.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page) with this length, and found under
    ///   the guard.
    pub(crate) unsafe fn page<'g>(&'g self, page: *mut P, len: u32, _guard: &'g Guard) -> &'g [P] {
        // SAFETY: by the page rule of the page table, the page outlives the guard. Its entries are
        // only ever shared.
        unsafe { std::slice::from_raw_parts(page, len as usize) }
    }

    /// Returns an unshared page of `len` entries, or `None` if there is no memory for it.
    pub(crate) fn make_page(&self, _index: u32, len: u32) -> Option<*mut P> {
        try_boxed(len as usize, P::default)
    }

    /// Frees a page that was returned by `make_page` with this length and that no other thread has
    /// seen.
    pub(crate) fn unmake_page(&self, page: *mut P, len: u32) {
        // SAFETY: made by `make_page` and not published.
        drop(unsafe { boxed_slice(page, len as usize) });
    }

    /// Returns `true` if a page of this many entries can be freed before the end, as all can.
    pub(crate) fn is_returnable(&self, _len: u32) -> bool {
        true
    }

    /// Called before a page is removed. Does nothing here, so late readers find the old content.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page).
    pub(crate) unsafe fn zero(&self, _page: *mut P, _len: u32) {}

    /// Called after a page was removed. Frees it once every present guard has been dropped.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page) with this length, its entries hold
    ///   no values, and later look-ups do not find it.
    pub(crate) unsafe fn reclaim(&self, page: *mut P, len: u32, guard: &Guard) {
        let free = move || {
            // SAFETY: `make_page` made the page as a boxed slice of this length, and no guard that
            // could have found it is left.
            drop(unsafe { boxed_slice(page, len as usize) });
        };
        // SAFETY: `free` owns the page, whose entries hold no values. It may therefore run on any
        // thread, at any later time, even after the wheel has been dropped.
        unsafe { guard.defer_unchecked(free) };
    }

    /// Frees a page whose values have already been dropped.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page) with this length, and `self` is
    ///   being dropped.
    pub(crate) unsafe fn free(&mut self, page: *mut P, len: u32) {
        // SAFETY: guaranteed by the caller.
        drop(unsafe { boxed_slice(page, len as usize) });
    }
}
