//! Containment of panics in user code.

#![forbid(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Runs user code and discards its panic.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        drop_payload(panic);
    }
}

/// Returns the result of a lock or a wait, even if a thread has panicked while it held the lock.
/// The state behind the crate's locks is consistent wherever user code runs.
pub(crate) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Returns the guard of an attempt to lock, poisoned or not, or `None` if another thread holds the
/// lock. In a forked child that thread may be missing, so a wait for it could last forever.
pub(crate) fn unless_locked<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Drops user values one by one, or calls user functions, and does not stop at a panic.
///
/// Like the drop of a vector, it resumes the first panic at the end. Unlike a vector, it does not
/// panic while the thread is already panicking, which would abort the process.
#[derive(Default)]
pub(crate) struct DropEach {
    first: Option<Box<dyn Any + Send>>,
}

impl DropEach {
    pub(crate) fn drop_one<V>(&mut self, value: V) {
        self.run(|| drop(value));
    }

    pub(crate) fn run(&mut self, run: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            match &self.first {
                None => self.first = Some(panic),
                Some(_) => drop_payload(panic),
            }
        }
    }
}

impl Drop for DropEach {
    fn drop(&mut self) {
        match self.first.take() {
            Some(panic) if std::thread::panicking() => drop_payload(panic),
            Some(panic) => resume_unwind(panic),
            None => (),
        }
    }
}

/// Drops the payload of a panic. A panic of that drop is discarded too.
pub(crate) fn drop_payload(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
}
