//! Panics of the user's code where others must not suffer from them.

#![forbid(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// Runs what is the user's; a panic is dropped.
pub(crate) fn quietly(run: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
        discard(panic);
    }
}

/// What a lock or a wait returned, also if a thread has panicked while it held the lock: what lies
/// behind the locks here is whole wherever the user's code runs.
pub(crate) fn ignore_poison<G>(result: LockResult<G>) -> G {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// What an attempt to lock returned, poisoned or not; `None` if another thread holds the lock. In a
/// forked child that thread may be missing, so that a wait for it would last forever.
pub(crate) fn unless_locked<G>(result: TryLockResult<G>) -> Option<G> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Drops values of the user's one by one, or calls the user's functions, all of them though some
/// panic.
///
/// Like a vector's drop, it panics in the end with what the first of them did; unlike that, not
/// when it runs because of a panic, which would abort the process.
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

/// Drops what a call panicked with; a drop that panics in turn has nobody left to tell.
pub(crate) fn discard(panic: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(panic)));
}
