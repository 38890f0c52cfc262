//! Panics of the user's code where others must not suffer from them.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what is the user's; a panic is dropped, and so is what its payload's drop does.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
    }
}
