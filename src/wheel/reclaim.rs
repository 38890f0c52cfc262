//! When memory that other threads may still be looking at goes back to the allocator.
//!
//! Only slab pages need this. A thread looks a timer up under a [`Guard`]; a page taken out of
//! the directory is freed once every guard of that time has gone (`crossbeam-epoch`; Fraser,
//! *Practical lock-freedom*, 2004). Blocks of names need no such care: see
//! [`SlotHead`](crate::wheel::hierarchy::slot::SlotHead).

#[cfg(any(not(modelled), crossbeam_loom))]
pub(crate) use epoch::{Guard, pin, retire};

#[cfg(all(modelled, not(crossbeam_loom)))]
pub(crate) use kept::{Guard, pin, retire};

/// Runs what was retired, as far as the other threads' guards let it; the caller has none.
///
/// Nobody else would: the epoch moves on and its garbage is looked at only as threads pin, and an
/// idle wheel's do not. Each step moves the epoch on by one at most, and frees some hundreds of
/// pages; two epochs must pass.
#[cfg(not(modelled))]
pub(crate) fn collect() {
    const STEPS: usize = 16;
    for _ in 0..STEPS {
        pin().flush();
    }
}

/// A model collects where it wants to: each pin multiplies its executions.
#[cfg(modelled)]
pub(crate) fn collect() {}

#[cfg(any(not(modelled), crossbeam_loom))]
mod epoch {
    pub(crate) use crossbeam_epoch::{Guard, pin};

    /// Runs `free` once no guard that exists now exists any more.
    ///
    /// # Safety
    ///
    /// `free` may run on any thread, at any later time, also after the wheel has gone: it must
    /// own what it touches.
    pub(crate) unsafe fn retire(guard: &Guard, free: impl FnOnce()) {
        // SAFETY: the caller vouches that `free` owns all it touches, on whatever thread it runs.
        unsafe { guard.defer_unchecked(free) };
    }
}

/// Most models keep every page to the end: a pin alone would multiply their executions a
/// hundredfold. Those of the epoch itself are built with crossbeam's own switch.
#[cfg(all(modelled, not(crossbeam_loom)))]
mod kept {
    #[derive(Debug)]
    pub(crate) struct Guard;

    impl Guard {
        pub(crate) fn repin(&mut self) {}
    }

    pub(crate) fn pin() -> Guard {
        Guard
    }

    /// # Safety
    ///
    /// As with the epoch.
    pub(crate) unsafe fn retire(_guard: &Guard, free: impl FnOnce()) {
        let _kept = std::mem::ManuallyDrop::new(free);
    }
}
