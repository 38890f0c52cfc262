//! Atomics, cells, locks and threads of `std`, loom or shuttle.
//!
//! All code uses these types through this module, so that the models in `loom-tests` run the real
//! sources. They are loom's atomics under `cfg(loom)` and shuttle's under `cfg(shuttle)`. Under
//! either, `cfg(modelled)` makes all sizes small. Under `cfg(traced)` atomics and cells record
//! which lines of memory move from thread to thread. `UnsafeCell` has loom's closure interface
//! everywhere. Loom has no timeouts, so it models the wheel and not the driver, and locks and
//! threads are `std`'s under it.

#[cfg(not(modelled))]
use std as source;

#[cfg(loom)]
use loom as source;

#[cfg(shuttle)]
use shuttle as source;

mod fork;
mod inside;
#[cfg(traced)]
pub mod traced;
mod waiters;

pub(crate) use fork::{Flagged, Process, SetInChild};
pub(crate) use inside::Inside;
pub(crate) use source::sync::Arc;
#[cfg(not(traced))]
pub(crate) use source::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
};
pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
#[cfg(traced)]
pub(crate) use traced::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
pub(crate) use waiters::{WaiterId, Waiters, WakeList};

#[cfg(not(shuttle))]
use std as blocking;

#[cfg(shuttle)]
use shuttle as blocking;

pub(crate) use blocking::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use blocking::{thread, thread_local};
// Per thread of a model, whereas `thread_local` is per thread of the system under loom.
#[cfg(modelled)]
pub(crate) use source::thread_local as modelled_thread_local;

// A word that one thread at a time uses, and that is handed over in order, so that no explorer has
// to track it.
pub(crate) use std::sync::atomic::AtomicUsize as UnmodelledUsize;

// A number that is neither part of a model nor of what a test checks.
pub(crate) use std::sync::atomic::AtomicU32 as UnmodelledU32;

// The lock of the keyed timers' map. A model explores its order with the wheel's words, and loom
// must be able to wake a thread that waits for it.
#[cfg(modelled)]
pub(crate) use source::sync::{Mutex as ModelledMutex, MutexGuard as ModelledGuard};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

#[cfg(not(loom))]
pub(crate) use cell::UnsafeCell;

#[cfg(not(loom))]
mod cell {
    #[cfg(traced)]
    use crate::sync::traced::{Access, record};

    /// `std`'s cell with loom's interface.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Runs `f` with a pointer to the value, which no other thread may access meanwhile.
        #[inline]
        #[cfg_attr(traced, track_caller)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            #[cfg(traced)]
            record(self, Access::Write);
            f(self.0.get())
        }
    }
}
