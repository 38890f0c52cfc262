//! Where entries lie, and how their memory goes back when a burst is over.
//!
//! Two ways, behind the same few functions:
//!
//! * `mapped` (Linux, 64 bits): entries stay where they are for as long as the wheel exists, in
//!   mappings of the system's, and a page that is not needed goes back to the system by itself. A
//!   look-up needs no protection: what it reads there is always an entry, if only one that has
//!   been zeroed.
//! * `boxed` (elsewhere, and here with `--cfg portable`): pages from the allocator, freed when
//!   every guard of that time has gone (`crossbeam-epoch`; Fraser, *Practical lock-freedom*, 2004).
//!
//! Both have `Places`, the entries by their index; `Guard`, under which a reference to one is good,
//! and `Pin`, its owner; and [`Zeroable`], what an entry must be. The models of `loom-tests`
//! run `mapped`, and those of the epoch `boxed`. Miri has no mappings: there, too, pages
//! are the allocator's, unless `--cfg tiny` makes everything small and `mapped` uses memory as the
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

pub(crate) use chosen::{Guard, Pin, Places, collect, pin};
use std::{iter, ptr};

/// The boxed slice that `first` was made from.
///
/// # Safety
///
/// - `first` came from a `Box<[S]>` of `len` elements, and nobody else uses it any more.
pub(crate) unsafe fn boxed_slice<S>(first: *mut S, len: usize) -> Box<[S]> {
    // SAFETY: the caller vouches for pointer, length and ownership.
    unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, len)) }
}

/// A boxed slice of `len` elements, as a pointer to the first; `None` if the allocator has no
/// memory for it.
pub(crate) fn try_boxed<S>(len: usize, make: impl FnMut() -> S) -> Option<*mut S> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).ok()?;
    elements.extend(iter::repeat_with(make).take(len));
    Some(Box::into_raw(elements.into_boxed_slice()).cast())
}

/// What an entry must be.
///
/// # Safety
///
/// - All zeros is an entry, and the default one.
/// - Whatever others may write to an entry that is shared is atomic, or in a cell that nobody
///   touches while its page is away.
pub(crate) unsafe trait Zeroable: Default {
    /// Makes it the default one.
    #[cfg(any(modelled, tiny))]
    fn zero(&self);
}
