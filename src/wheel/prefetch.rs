//! Asking the processor to fetch memory ahead of its use, so that many misses are waited for
//! together.

/// Begins to fetch the cache lines in which what is at `place` begins and ends, to be written. A
/// hint: `place` need not be valid.
#[inline]
pub(crate) fn prefetch<V>(place: *const V) {
    let first: *const i8 = place.cast();
    line(first);
    line(first.wrapping_add(size_of::<V>().saturating_sub(1)));
}

#[inline]
fn line(place: *const i8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the instruction reads and writes nothing, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(place);
    }
    // Elsewhere there is no stable way to ask.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
