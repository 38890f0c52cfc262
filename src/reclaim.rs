//! When memory that other threads may still be looking at goes back to the allocator.
//!
//! Only slab pages need this. A thread looks a timer up under a [`Guard`]; a page taken out of
//! the directory is freed once every guard of that time has gone (`crossbeam-epoch`; Fraser,
//! *Practical lock-freedom*, 2004). Blocks of names need no such care: see
//! [`SlotHead`](crate::hierarchy::slot::SlotHead).

#[cfg(not(loom))]
pub(crate) use crossbeam_epoch::{Guard, pin};

/// Runs `free` once no guard that exists now exists any more.
///
/// # Safety
///
/// `free` may run on any thread, at any later time, also after the wheel has gone: it must own
/// what it touches.
#[cfg(not(loom))]
pub(crate) unsafe fn retire(guard: &Guard, free: impl FnOnce()) {
    // SAFETY: the caller vouches that `free` owns all it touches, on whatever thread it runs.
    unsafe { guard.defer_unchecked(free) };
    guard.flush();
}

/// Loom's models keep every page to the end: epochs have models of their own.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct Guard;

#[cfg(loom)]
impl Guard {
    pub(crate) fn repin(&mut self) {}
}

#[cfg(loom)]
pub(crate) fn pin() -> Guard {
    Guard
}

/// # Safety
///
/// As in the build without loom.
#[cfg(loom)]
pub(crate) unsafe fn retire(_guard: &Guard, free: impl FnOnce()) {
    let _kept = std::mem::ManuallyDrop::new(free);
}
