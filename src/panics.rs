//! Panics of the user's code where nobody is to be told of them.

#![forbid(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what is the user's; a panic is dropped.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        discard(panic);
    }
}

/// Drops what a call panicked with; a drop that panics in turn has nobody left to tell.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
}
