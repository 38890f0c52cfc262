//! Entries with fixed addresses, in chunks that grow by doubling.
//!
//! ```text
//! chunks ─► ├─ 2 entries ─┤                      made when first needed, and kept to the end.
//!           ├─ 4 entries ──────────────┤         Those smaller than a page are the allocator's.
//!           ├─ 8 entries ────────── …            All others are mappings, of which the system
//!                                                provides the memory that is written to
//! ```
//!
//! An entry's address follows from its index alone, for as long as the wheel exists. A look-up is
//! therefore a few instructions and needs no guard. [`Pin`] is empty, and [`pin`] does nothing.
//!
//! **Giving memory back.** The system takes the memory of a page back and presents zeros there
//! until the next write. All zeros is a vacant entry of the first generation whose next visit
//! describes no reference ([`Zeroable`]). No id matches it, and no reference is relied upon through
//! it. No thread changes the content while the page is removed. [`crate::wheel::slab::page_table`]
//! lists the threads that could, and the reasons why they do not. What the allocator made stays.
//!
//! **Address space**, not memory, is the cost of a mapping. It is up to twice the size of the
//! entries. If address space is limited (`RLIMIT_AS`), or counts as memory
//! (`vm.overcommit_memory=2`), the portable variant is the better choice. Entries are not put on
//! huge pages, because an insert would wait for two megabytes to be cleared, and a page of entries
//! could only be given back together with all its neighbours.

use super::Zeroable;
use crate::sync::{AcqRel, Acquire, AtomicPtr, Relaxed};
use crate::wheel::bits::in_chunks;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;

/// The first chunk has `2^FIRST_BITS` entries.
pub(crate) const FIRST_BITS: u32 = 1;

/// A page has at most `2^MAX_PAGE_BITS` entries.
#[cfg(not(any(modelled, tiny)))]
const MAX_PAGE_BITS: u32 = 13;
#[cfg(all(tiny, not(modelled)))]
const MAX_PAGE_BITS: u32 = 2;
#[cfg(modelled)]
const MAX_PAGE_BITS: u32 = FIRST_BITS;

/// Enough chunks for 2^30 entries.
#[cfg(not(modelled))]
const CHUNKS: usize = 31 - FIRST_BITS as usize;
/// Models have some tens of entries. Those on random schedules may have more, because most of them
/// reuse no block, and a sweep takes some at each tick while a refiling does not end.
#[cfg(modelled)]
const CHUNKS: usize = if cfg!(shuttle) { 7 } else { 5 };

/// The right to look entries up. It is not needed here.
#[derive(Debug)]
pub(crate) struct Guard(());

/// A thread's ownership of a [`Guard`]. It stays on that thread, like the pin of an epoch.
#[derive(Debug)]
pub(crate) struct Pin {
    _of_its_thread: PhantomData<*const ()>,
}

impl Pin {
    #[inline]
    pub(crate) fn repin(&mut self) {}
}

/// Returns a static guard, because a reference into the caller's stack would prevent it from ending
/// in a jump.
impl Deref for Pin {
    type Target = Guard;

    #[inline]
    fn deref(&self) -> &Guard {
        &Guard(())
    }
}

/// Does nothing. It is present so that owners of a pin compile in the same way for both variants.
impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {}
}

#[inline]
pub(crate) fn pin() -> Pin {
    Pin { _of_its_thread: PhantomData }
}

/// Does nothing, because nothing is retired here.
#[inline]
pub(crate) fn collect() {}

/// The entries of a slab, by index.
#[derive(Debug)]
pub(crate) struct Places<P: Zeroable> {
    chunks: [AtomicPtr<P>; CHUNKS],
    page_len: u32,
}

impl<P: Zeroable> Places<P> {
    /// Creates storage for entries in pages of up to `page_len`, a power of two.
    pub(crate) fn new(page_len: u32) -> Self {
        debug_assert!(page_len.is_power_of_two());
        Self { chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())), page_len }
    }

    /// Returns the number of bits of the index within a page. It is the number asked for, or more
    /// where a page of that many entries is not a whole number of the system's pages. Pages of a
    /// few entries are for tests and keep their size.
    pub(crate) fn page_bits(asked_for: u32) -> u32 {
        const FEW: u32 = 8;
        let whole = |&bits: &u32| system::is_whole(size_of::<P>() << bits);
        let bits = (asked_for..MAX_PAGE_BITS).find(|bits| asked_for < FEW || whole(bits));
        bits.unwrap_or(MAX_PAGE_BITS)
    }

    /// Returns the entry at `index`, if there ever was one. `_page` is not needed.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a part of every operation")]
    pub(crate) fn get<'g>(
        &'g self,
        index: u32,
        _page: impl FnOnce() -> (*mut P, u32),
        _guard: &'g Guard,
    ) -> Option<&'g P> {
        let (chunk, offset) = in_chunks(index, FIRST_BITS);
        // Acquire: pairs with the Release of `make_chunk`, so that the memory is seen.
        let first = self.chunks.get(chunk)?.load(Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: chunk `c` has `2^(FIRST_BITS + c)` entries and `in_chunks` returns an offset
        // below that.
        let place = unsafe { first.add(offset) };
        // SAFETY: the chunk lives as long as `self`, and its whole content is entries, by the rule
        // of `Zeroable`. Entries are only ever shared.
        Some(unsafe { &*place })
    }

    /// Returns the entries of a page.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page) with this length.
    pub(crate) unsafe fn page<'g>(&'g self, page: *mut P, len: u32, _guard: &'g Guard) -> &'g [P] {
        // SAFETY: that many entries lie there, in a chunk that lives as long as `self`. They are
        // only ever shared.
        unsafe { std::slice::from_raw_parts(page, len as usize) }
    }

    /// Returns the address of the page of `len` entries that begins with the entry at `index`,
    /// after making its memory if necessary. The content of its entries is as they were left, or
    /// zeroed. Returns `None` if there is no memory.
    ///
    /// A page that is smaller than the others is a whole chunk, and every other one is a part of
    /// one ([`page_layout`](crate::wheel::slab::page_layout)).
    pub(crate) fn make_page(&self, index: u32, len: u32) -> Option<*mut P> {
        let (chunk, offset) = in_chunks(index, FIRST_BITS);
        // Acquire: as in `get`.
        let there = self.chunks[chunk].load(Acquire);
        let first = if there.is_null() { self.make_chunk(chunk)? } else { there };
        // SAFETY: as in `get`.
        let page = unsafe { first.add(offset) };
        if index >= BROUGHT_FROM && !self.is_small(chunk) {
            // SAFETY: part of the mapping. A wheel that has grown so far will use it.
            unsafe { system::bring(page, Self::brought(len)) };
        }
        Some(page)
    }

    /// Returns the number of entries of a page of `len` that are populated at once. That is all, or
    /// as many as do not delay the insert that makes the page for long. Large entries are populated
    /// as they are used, each in one or more pages of the system.
    fn brought(len: u32) -> usize {
        const MAX_BYTES: usize = 1 << 18;
        (MAX_BYTES / size_of::<P>().max(1)).min(len as usize)
    }

    /// Undoes a `make_page` that raced with another one. Does nothing, because both return the same
    /// page.
    pub(crate) fn unmake_page(&self, _page: *mut P, _len: u32) {}

    /// Returns `true` if the memory of a page of `len` entries can be given back before the end.
    pub(crate) fn is_returnable(&self, len: u32) -> bool {
        len >= self.page_len
    }

    /// Called before a page is removed. Zeroes its entries and gives its memory back, if that is
    /// possible.
    ///
    /// # Safety
    ///
    /// - `page` was returned by [`make_page`](Self::make_page) with this length, and its entries
    ///   hold no values.
    /// - No thread needs their content or changes it until the page is installed again, if it is.
    pub(crate) unsafe fn zero(&self, page: *mut P, len: u32) {
        if self.is_returnable(len) {
            // SAFETY: the page is in a mapping of this slab. The caller guarantees the rest.
            unsafe { system::give_back(page, len as usize) };
        }
    }

    /// Called after a page was removed. Does nothing here.
    ///
    /// # Safety
    ///
    /// - As for [`zero`](Self::zero), which has been called before.
    pub(crate) unsafe fn reclaim(&self, _page: *mut P, _len: u32, _guard: &Guard) {}

    /// Frees a page whose values have already been dropped. Here it is freed with its chunk.
    ///
    /// # Safety
    ///
    /// - `self` is being dropped.
    pub(crate) unsafe fn free(&mut self, _page: *mut P, _len: u32) {}

    #[cold]
    fn make_chunk(&self, chunk: usize) -> Option<*mut P> {
        let len = Self::chunk_len(chunk);
        let made = if self.is_small(chunk) { system::allocate(len) } else { system::map(len) }?;
        // AcqRel on success, Acquire on failure:
        // - the Release half publishes the memory to `get`;
        // - the Acquire, also on failure, observes the memory of a thread that was faster, as in
        //   `get`.
        match self.chunks[chunk].compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => Some(made),
            Err(there) => {
                // SAFETY: made just above, and no other thread knows it.
                unsafe { self.free_chunk(chunk, made) };
                Some(there)
            }
        }
    }

    /// # Safety
    ///
    /// - `first` is what [`make_chunk`](Self::make_chunk) made for this chunk, and is no longer
    ///   used.
    unsafe fn free_chunk(&self, chunk: usize, first: *mut P) {
        let len = Self::chunk_len(chunk);
        match self.is_small(chunk) {
            // SAFETY: allocated with this length; the caller guarantees the rest.
            true => unsafe { system::free(first, len) },
            // SAFETY: mapped with this length; the caller guarantees the rest.
            false => unsafe { system::unmap(first, len) },
        }
    }

    /// Returns `true` if a chunk is smaller than a page of the full size and holds few bytes. It
    /// then comes from the allocator, which writes zeros to all of it.
    fn is_small(&self, chunk: usize) -> bool {
        const MAX_BYTES: usize = 1 << 16;
        let len = Self::chunk_len(chunk);
        len < self.page_len as usize && len * size_of::<P>() <= MAX_BYTES
    }

    fn chunk_len(chunk: usize) -> usize {
        1 << (FIRST_BITS as usize + chunk)
    }
}

/// Pages from this index on are populated at once, because a wheel that has grown so far will grow
/// farther.
const BROUGHT_FROM: u32 = 1 << 13;

impl<P: Zeroable> Drop for Places<P> {
    fn drop(&mut self) {
        for (number, chunk) in self.chunks.iter().enumerate() {
            // Relaxed: `&mut self` already orders everything before this.
            let first = chunk.load(Relaxed);
            if !first.is_null() {
                // SAFETY: made by `make_chunk`, and `self` is being dropped.
                unsafe { self.free_chunk(number, first) };
            }
        }
    }
}

/// Memory from the system.
#[cfg(not(any(modelled, tiny)))]
mod system {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use rustix::param::page_size;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ffi::c_void;
    use std::ptr;

    /// The alignment of memory from the allocator, so that a block of references is one cache line.
    const LINE: usize = 64;

    fn layout<P>(len: usize) -> Option<Layout> {
        Layout::array::<P>(len).ok()?.align_to(LINE).ok().filter(|layout| layout.size() > 0)
    }

    /// Returns room for `len` values, all zeros, from the allocator. Returns `None` if it has none.
    pub(super) fn allocate<P>(len: usize) -> Option<*mut P> {
        let layout = layout::<P>(len)?;
        // SAFETY: the size is not zero.
        let memory = unsafe { alloc_zeroed(layout) };
        (!memory.is_null()).then_some(memory.cast())
    }

    /// # Safety
    ///
    /// - The memory was returned by [`allocate`] for the same `len`, and is no longer used.
    pub(super) unsafe fn free<P>(first: *mut P, len: usize) {
        if let Some(layout) = layout::<P>(len) {
            // SAFETY: guaranteed by the caller.
            unsafe { dealloc(first.cast(), layout) };
        }
    }

    /// Returns room for `len` values, all zeros. Returns `None` if the system refuses it, because
    /// the address space or the number of mappings is limited.
    pub(super) fn map<P>(len: usize) -> Option<*mut P> {
        let layout = Layout::array::<P>(len).ok()?;
        // Memory that is aligned to more than a page of the system is cut out of a larger mapping.
        let surplus = if layout.align() > page_size() { layout.align() } else { 0 };
        let (prot, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the system chooses an unused range of addresses.
        let mapped =
            unsafe { mmap_anonymous(ptr::null_mut(), layout.size() + surplus, prot, flags) };
        let mapped = mapped.ok()?;
        // SAFETY: advice on what was mapped just above; a system without huge pages refuses it.
        let _small = unsafe { madvise(mapped, layout.size() + surplus, Advice::LinuxNoHugepage) };
        if surplus == 0 {
            return Some(mapped.cast());
        }
        let before = mapped.align_offset(layout.align());
        let first: *mut c_void = mapped.wrapping_byte_add(before);
        let end = layout.size().next_multiple_of(page_size());
        // SAFETY: this part of the mapping is not used.
        unsafe { unmap_bytes(mapped, before) };
        // SAFETY: as above.
        unsafe { unmap_bytes(first.wrapping_byte_add(end), surplus.saturating_sub(before)) };
        Some(first.cast())
    }

    /// # Safety
    ///
    /// - The memory was returned by [`map`] for the same `len`, and is no longer used.
    pub(super) unsafe fn unmap<P>(first: *mut P, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { unmap_bytes(first.cast(), len * size_of::<P>()) };
    }

    /// Gives the memory back to the system, except for the parts of system pages that are not
    /// whole. The content is then zeros.
    ///
    /// # Safety
    ///
    /// - The memory is part of a mapping by [`map`], and its content is not needed.
    pub(super) unsafe fn give_back<P>(first: *mut P, len: usize) {
        let begin = first.addr().next_multiple_of(page_size());
        let end = (first.addr() + len * size_of::<P>()) & !(page_size() - 1);
        if begin < end {
            let whole = first.with_addr(begin).cast();
            // SAFETY: whole pages of a private mapping, as the caller guarantees. Concurrent
            // readers find the old content or zeros, word for word. If the system refuses (because
            // the memory is locked), the content stays, and the thread that installs the page again
            // reinitialises it.
            let _given_back = unsafe { madvise(whole, end - begin, Advice::LinuxDontNeed) };
        }
    }

    /// Has the system populate the memory at once, and not page by page at the first access, which
    /// costs an interrupt each. A system that cannot (before Linux 5.14) populates it later.
    ///
    /// # Safety
    ///
    /// - The memory is part of a mapping by [`map`].
    pub(super) unsafe fn bring<P>(first: *mut P, len: usize) {
        let begin = first.addr() & !(page_size() - 1);
        let bytes = first.addr() + len * size_of::<P>() - begin;
        // SAFETY: guaranteed by the caller; the content stays as it is.
        let _brought =
            unsafe { madvise(first.with_addr(begin).cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// Returns `true` if that many bytes are a whole number of the system's pages.
    pub(super) fn is_whole(bytes: usize) -> bool {
        bytes % page_size() == 0
    }

    /// # Safety
    ///
    /// - This part of a mapping is not used.
    unsafe fn unmap_bytes(first: *mut c_void, bytes: usize) {
        if bytes > 0 {
            // SAFETY: guaranteed by the caller.
            let unmapped = unsafe { munmap(first, bytes) };
            debug_assert!(unmapped.is_ok(), "{unmapped:?}");
        }
    }
}

/// The memory of models and of Miri. Memory that is given back is zeroed, as the system's is.
#[cfg(any(modelled, tiny))]
mod system {
    use crate::wheel::memory::{Zeroable, boxed_slice, try_boxed};
    use std::ptr;

    pub(super) fn map<P: Zeroable>(len: usize) -> Option<*mut P> {
        try_boxed(len, P::default)
    }

    pub(super) fn allocate<P: Zeroable>(len: usize) -> Option<*mut P> {
        map(len)
    }

    /// # Safety
    ///
    /// - As for the allocator's memory.
    pub(super) unsafe fn free<P: Zeroable>(first: *mut P, len: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { unmap(first, len) };
    }

    /// # Safety
    ///
    /// - As for the system's memory.
    pub(super) unsafe fn unmap<P: Zeroable>(first: *mut P, len: usize) {
        // SAFETY: `map` made a boxed slice of this length.
        drop(unsafe { boxed_slice(first, len) });
    }

    /// # Safety
    ///
    /// - As for the system's memory.
    pub(super) unsafe fn give_back<P: Zeroable>(first: *mut P, len: usize) {
        // SAFETY: part of an allocation by `map`, which is only ever shared.
        let places = unsafe { &*ptr::slice_from_raw_parts(first, len) };
        places.iter().for_each(P::zero);
    }

    /// # Safety
    ///
    /// - None.
    pub(super) unsafe fn bring<P: Zeroable>(_first: *mut P, _len: usize) {}

    pub(super) fn is_whole(_bytes: usize) -> bool {
        true
    }
}

#[cfg(all(test, not(modelled)))]
#[cfg(not(tiny))]
mod tests {
    use super::{Places, Zeroable, pin, system};
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// Aligned to more than a page of any system.
    #[derive(Default)]
    #[repr(align(131072))]
    struct Wide(AtomicU64);

    // SAFETY: its only field is a number, by default zero.
    unsafe impl Zeroable for Wide {}

    #[derive(Default)]
    struct Number(AtomicU64);

    // SAFETY: as above.
    unsafe impl Zeroable for Number {}

    /// 256 of them are not a whole number of the common systems' pages.
    #[derive(Default)]
    struct Odd([u64; 5]);

    // SAFETY: as above; it is never written to.
    unsafe impl Zeroable for Odd {}

    #[test]
    fn pages_of_entries_are_whole_pages_of_the_system() {
        for asked_for in 8..12 {
            let bits = Places::<Odd>::page_bits(asked_for);
            assert_eq!((size_of::<Odd>() << bits) % rustix::param::page_size(), 0);
        }
        assert_eq!(Places::<Odd>::page_bits(0), 0, "asked for by a test");
        assert_eq!(Odd::default().0, [0; 5]);
        assert_eq!(Places::<Wide>::page_bits(10), 10);
    }

    #[test]
    fn an_insert_waits_for_no_more_than_a_part_of_a_large_page() {
        assert_eq!(Places::<Number>::brought(1 << 10), 1 << 10);
        assert_eq!(Places::<Wide>::brought(1 << 10), 2);
    }

    #[test]
    fn what_shares_a_page_of_the_system_is_not_forgotten() {
        let (places, guard) = (Places::<Number>::new(1 << 2), pin());
        let page = places.make_page(6, 4).unwrap();
        let number = |index| &places.get(index, || (ptr::null_mut(), 0), &guard).unwrap().0;
        (6..14).for_each(|index| number(index).store(7, Relaxed));
        // SAFETY: it has no values, and no other thread writes to it.
        unsafe { places.zero(page, 4) };
        for index in 10..14 {
            assert_eq!(number(index).load(Relaxed), 7);
        }
    }

    #[test]
    fn what_is_aligned_to_more_than_the_systems_pages_is_so() {
        for len in 1..9 {
            let first = system::map::<Wide>(len).unwrap();
            assert!(first.is_aligned());
            // SAFETY: the number that was mapped, all zeros.
            let mapped = unsafe { std::slice::from_raw_parts(first, len) };
            assert!(mapped.iter().all(|wide| wide.0.load(Relaxed) == 0));
            // SAFETY: mapped just above.
            unsafe { system::unmap(first, len) };
        }
    }

    /// A page that is smaller than the others stays as it is, because the allocator has made it.
    #[test]
    fn places_keep_their_addresses_and_forget() {
        let places = Places::<Number>::new(1 << 9);
        let get = |index| places.get(index, || (ptr::null_mut(), 0), &pin()).map(ptr::from_ref);
        for (first, len, left) in [(0, 2, 7), (510, 512, 0)] {
            assert_eq!(get(first), None);
            let page = places.make_page(first, len).unwrap();
            assert_eq!(get(first), Some(page.cast_const()));
            // SAFETY: one of the places, only ever shared.
            let place = unsafe { &*page };
            place.0.store(7, Relaxed);
            // SAFETY: it has no value, and no other thread writes to it.
            unsafe { places.zero(page, len) };
            assert_eq!((place.0.load(Relaxed), places.is_returnable(len)), (left, left == 0));
            assert_eq!(places.make_page(first, len), Some(page));
        }
        assert!(get(2).is_none() && get(1022).is_none());
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        assert_eq!(system::map::<Number>(1 << 47), None);
        assert_eq!(system::map::<Number>(usize::MAX / 4), None, "more than any layout");
    }
}
