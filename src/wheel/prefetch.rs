//! Prefetching: asks the processor to fetch memory ahead of its use, so that cache misses overlap.

/// Starts to fetch the cache lines that contain the first and the last byte at `place`, for a
/// write. A hint: `place` need not be valid.
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
    // Other targets have no stable way to prefetch.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}
