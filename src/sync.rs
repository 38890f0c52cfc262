//! The one door to atomics, cells and shared ownership: `std`'s, or loom's under `cfg(loom)`.
//!
//! Everything below the driver reaches these types through here, so that the models in
//! `loom-tests` run the real sources. `UnsafeCell` has loom's closure interface on both sides.

#[cfg(not(loom))]
pub(crate) use plain::*;

#[cfg(loom)]
pub(crate) use modelled::*;

#[cfg(not(loom))]
mod plain {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };

    /// `std`'s cell behind loom's interface.
    #[derive(Debug)]
    #[repr(transparent)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Runs `f` with a pointer to the value, which nobody may write meanwhile.
        #[inline]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Runs `f` with a pointer to the value, which nobody else may touch meanwhile.
        #[inline]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod modelled {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence,
    };
}

pub(crate) use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
