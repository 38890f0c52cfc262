//! The storage of entries, and the reclamation of its memory after a burst. [`Lazy`] is for parts
//! of a wheel that are made when they are first needed, and [`prefetch`] lets cache misses overlap.
//!
//! There are two variants with the same interface:
//!
//! * `mapped` (Linux, 64 bits): entries keep their addresses for as long as the wheel exists, in
//!   mappings from the system. A page that is not needed goes back to the system by itself. A
//!   look-up needs no protection, because it always reads an entry, although that may have been
//!   zeroed.
//! * `boxed` (elsewhere, and on Linux with `--cfg portable`): pages come from the allocator and are
//!   freed when every guard of that time has been dropped (`crossbeam-epoch`; Fraser, *Practical
//!   lock-freedom*, 2004).
//!
//! Both have `Places`, the entries by their index; `Guard`, under which a reference to an entry is
//! valid; `Pin`, the owner of a guard; and [`Zeroable`], the requirements on an entry. The models
//! of `loom-tests` run `mapped`, and those of the epoch run `boxed`. Miri has no mappings, so it
//! also allocates pages, unless `--cfg tiny` makes everything small and `mapped` uses memory as the
//! models do.

#[cfg_attr(
    any(
        all(modelled, not(crossbeam_loom)),
        all(
            target_os = "linux",
            target_pointer_width = "64",
            not(any(modelled, portable, all(miri, not(tiny))))
        )
    ),
    path = "mapped.rs"
)]
#[cfg_attr(
    not(any(
        all(modelled, not(crossbeam_loom)),
        all(
            target_os = "linux",
            target_pointer_width = "64",
            not(any(modelled, portable, all(miri, not(tiny))))
        )
    )),
    path = "boxed.rs"
)]
mod chosen;

mod lazy;

pub(crate) use chosen::{FIRST_BITS, Guard, Pin, Places, collect, pin};
pub(crate) use lazy::Lazy;
#[cfg(modelled)]
pub(crate) use lazy::explore;
use std::{iter, ptr};

/// Returns the boxed slice from which `first` was made.
///
/// # Safety
///
/// - `first` came from a `Box<[S]>` of `len` elements, and is no longer used.
pub(crate) unsafe fn boxed_slice<S>(first: *mut S, len: usize) -> Box<[S]> {
    // SAFETY: the caller guarantees pointer, length and ownership.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, len)) }
}

/// Returns a boxed slice of `len` elements, as a pointer to the first, or `None` if the allocator
/// has no memory for it.
pub(crate) fn try_boxed<S>(len: usize, make: impl FnMut() -> S) -> Option<*mut S> {
    #[cfg(test)]
    if EXHAUSTED.get() {
        return None;
    }
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).ok()?;
    elements.extend(iter::repeat_with(make).take(len));
    Some(Box::into_raw(elements.into_boxed_slice()).cast())
}

#[cfg(test)]
std::thread_local! {
    static EXHAUSTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Makes the allocator have no memory for [`try_boxed`] on this thread, or have it again.
#[cfg(test)]
pub(crate) fn exhaust(exhausted: bool) {
    EXHAUSTED.set(exhausted);
}

/// The requirements on an entry.
///
/// # Safety
///
/// - All zeros is an entry, and the default one.
/// - Every part of a shared entry that other threads may write to is atomic, or in a cell that no
///   thread accesses while its page is removed.
pub(crate) unsafe trait Zeroable: Default {
    /// Resets it to the default one.
    #[cfg(any(modelled, tiny))]
    fn zero(&self);
}

/// Starts to fetch the cache lines that contain the first and the last byte at `place`, for a
/// write. A hint: `place` need not be valid.
#[inline]
pub(crate) fn prefetch<V>(place: *const V) {
    let first: *const i8 = place.cast();
    prefetch_line(first);
    prefetch_line(first.wrapping_add(size_of::<V>().saturating_sub(1)));
}

#[inline]
fn prefetch_line(place: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads and writes nothing, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(place);
    }
    // Other targets have no stable way to prefetch.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
