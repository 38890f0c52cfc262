//! Panics of the user's code where others must not suffer from them.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{LockResult, PoisonError};

/// Runs what is the user's; a panic is dropped, and so is what its payload's drop does.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}

/// Returns the guard of a lock or a wait, also if a thread has panicked while it held the lock: the
/// data behind the locks here is consistent wherever the user's code runs.
pub(crate) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}
