//! Containment of panics in user code.

#![forbid(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LockResult, PoisonError};

/// Runs the user's code and drops its panic.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        discard(panic);
    }
}

/// Returns the guard of a lock or a wait, even if a thread has panicked while it held the lock. The
/// data behind these locks is consistent wherever the user's code runs.
pub(crate) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Runs several calls of the user's code, all of them even if some panic.
///
/// Its drop panics with the first payload, unless the thread is already panicking, because a second
/// panic would abort the process.
#[derive(Default)]
pub(crate) struct DropEach {
    first: Option<Box<dyn Any + Send>>,
}

impl DropEach {
    pub(crate) fn run(&mut self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            match &self.first {
                None => self.first = Some(panic),
                Some(_) => discard(panic),
            }
        }
    }
}

impl Drop for DropEach {
    fn drop(&mut self) {
        match self.first.take() {
            Some(panic) if std::thread::panicking() => discard(panic),
            Some(panic) => resume_unwind(panic),
            None => (),
        }
    }
}

/// Drops the payload of a panic, and the panic of that drop.
fn discard(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
}
