//! Results that the optimiser must not see through.

#![forbid(unsafe_code)]

use crate::wheel::id::TimerId;
use std::hint::black_box;

/// Returns `result`, whose value the optimiser then does not know.
///
/// A fast path ends in a call of a function that is not inlined. The call is a jump only if its
/// result is returned as it is. If the optimiser knew the result of the called function, it would
/// build it again in the caller, after the call, and the fast path would have to save registers
/// for that.
#[inline]
pub(crate) fn opaque<R>(result: R) -> R {
    black_box(result)
}

/// Refuses an insert, and returns the value.
///
/// Not inlined, for the reason given at [`opaque`].
#[cold]
#[inline(never)]
pub(crate) fn hand_back<T>(value: T) -> Result<TimerId, T> {
    opaque(Err(value))
}
