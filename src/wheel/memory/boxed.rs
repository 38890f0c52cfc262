//! Pages from the allocator, freed behind the epoch.
//!
//! A thread looks an entry up under a [`Guard`]; a page that was taken out is freed once every
//! guard of that time has gone (`crossbeam-epoch`; Fraser, *Practical lock-freedom*, 2004).

use super::{Zeroable, boxed_slice, try_boxed};
use std::marker::PhantomData;

pub(crate) use crossbeam_epoch::{Guard, Guard as Pin, pin};

/// Runs what was retired, as far as the other threads' guards let it; the caller has none.
///
/// Nobody else would: the epoch moves on and its garbage is looked at only as threads pin, and an
/// idle wheel's do not. Each step moves the epoch on by one at most, and frees some hundreds of
/// pages; two epochs must pass.
#[cfg(not(modelled))]
pub(crate) fn collect() {
    const STEPS: usize = 16;
    for _ in 0..STEPS {
        pin().flush();
    }
}

/// A model collects where it wants to: each pin multiplies its executions.
#[cfg(modelled)]
pub(crate) fn collect() {}

/// The entries of a slab, by index: each page is where its slot of the page table says.
#[derive(Debug)]
pub(crate) struct Places<P: Zeroable> {
    page_len: u32,
    of: PhantomData<P>,
}

impl<P: Zeroable> Places<P> {
    /// Entries in pages of `page_len`, a power of two.
    pub(crate) fn new(page_len: u32) -> Self {
        debug_assert!(page_len.is_power_of_two());
        Self { page_len, of: PhantomData }
    }

    /// How many bits the index within a page should have: as asked for.
    pub(crate) fn page_bits(asked_for: u32) -> u32 {
        asked_for
    }

    /// The entry at `index` of the page that `page` finds, null if there is none.
    #[inline]
    pub(crate) fn get<'g>(
        &'g self,
        index: u32,
        page: impl FnOnce() -> *mut P,
        _guard: &'g Guard,
    ) -> Option<&'g P> {
        let page = page();
        if page.is_null() {
            return None;
        }
        let offset = (index & (self.page_len - 1)) as usize;
        // SAFETY: by the page rule of the page table the page has `page_len` entries and outlives
        // the guard; `offset` is below that.
        let place = unsafe { page.add(offset) };
        // SAFETY: as above; entries are only ever shared, never borrowed mutably.
        Some(unsafe { &*place })
    }

    /// The entries of a page.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page), and found under the guard.
    pub(crate) unsafe fn page<'g>(&'g self, page: *mut P, _guard: &'g Guard) -> &'g [P] {
        // SAFETY: by the page rule of the page table the page has `page_len` entries and outlives
        // the guard; they are only ever shared.
        unsafe { std::slice::from_raw_parts(page, self.page_len as usize) }
    }

    /// Returns an unshared page, or `None` if there is no memory for it.
    pub(crate) fn make_page(&self, _index: u32) -> Option<*mut P> {
        try_boxed(self.page_len as usize, P::default)
    }

    /// Frees what `make_page` has returned, and nobody else has seen.
    pub(crate) fn unmake_page(&self, page: *mut P) {
        // SAFETY: made by `make_page` and not published.
        drop(unsafe { boxed_slice(page, self.page_len as usize) });
    }

    /// A page is about to be taken out: who finds it still, finds what it holds.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page).
    pub(crate) unsafe fn zero(&self, _page: *mut P) {}

    /// A page has been taken out: it is freed once no guard that exists now exists any more.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page), its entries hold no values, and
    ///   whoever comes later does not find it any more.
    pub(crate) unsafe fn reclaim(&self, page: *mut P, guard: &Guard) {
        let len = self.page_len as usize;
        let free = move || {
            // SAFETY: `make_page` made the page as a boxed slice of this length, and no guard that
            // could have found it is left.
            drop(unsafe { boxed_slice(page, len) });
        };
        // SAFETY: `free` owns the page, whose entries hold no values; so it may run on any thread,
        // at any later time, also after the wheel has gone.
        unsafe { guard.defer_unchecked(free) };
    }

    /// Frees a page whose values are dropped already.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page), and `self` is going.
    pub(crate) unsafe fn free(&mut self, page: *mut P) {
        // SAFETY: the caller vouches for it.
        drop(unsafe { boxed_slice(page, self.page_len as usize) });
    }
}
