//! Isolation from panics in user code.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LockResult, PoisonError};

/// Runs user code and drops a panic, including a panic in the drop of its payload.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}

/// Returns the guard of a lock or a wait, even if a thread panicked while it held the lock. The
/// data behind the locks in this crate is consistent wherever user code runs.
pub(crate) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
