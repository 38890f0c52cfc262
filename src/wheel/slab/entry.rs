//! The slab entry, which holds one timer.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `state` | the claimer (arm), then any thread by exchange | any thread |
//! | `next_visit` | see [`super::next_visit`] | sweeper, resetters, claimers |
//! | `value` | the claimer, before `arm` | the thread whose `try_end` succeeded, once |
//!
//! **Value rule.** Between the claim of a vacant entry and its `arm`, only the claimer accesses
//! `value`. Between `arm` and a successful `try_end`, no thread does. After `try_end` and until the
//! entry is released, only the thread that succeeded does. The value is there exactly while the
//! generation is odd.

use super::next_visit::AtomicNextVisit;
use super::page_table::SlabItem;
use super::state::AtomicEntryState;
use crate::panics::DropEach;
use crate::sync::UnsafeCell;
use crate::wheel::memory::Zeroable;
use std::mem::MaybeUninit;

/// The storage for one timer.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub(crate) state: AtomicEntryState,
    pub(crate) next_visit: AtomicNextVisit,
    value: UnsafeCell<MaybeUninit<T>>,
}

/// A vacant entry that was never used.
impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self {
            state: AtomicEntryState::default(),
            next_visit: AtomicNextVisit::default(),
            value: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

// SAFETY: all zeros is a vacant state of the first generation, a next visit that refers to nothing
// and an absent value, as by default. State and `next_visit` are atomic. The value is in a cell,
// which by the value rule no thread accesses while the entry is vacant.
unsafe impl<T> Zeroable for Entry<T> {
    #[cfg(any(modelled, tiny))]
    fn zero(&self) {
        self.state.zero();
        self.next_visit.clear();
    }
}

// SAFETY: sharing an entry moves values of `T` between threads, by the value rule, which `T: Send`
// allows. No two threads ever access the same value at a time, so `T` need not be `Sync`.
unsafe impl<T: Send> Sync for Entry<T> {}

impl<T> SlabItem for Entry<T> {
    #[inline]
    fn state(&self) -> &AtomicEntryState {
        &self.state
    }

    #[inline]
    fn reinit(&self) {
        self.next_visit.clear();
    }

    unsafe fn drop_value(&self, values: &mut DropEach) {
        if self.state.load().is_armed() {
            // SAFETY: the generation is odd, so the value is there. The caller guarantees that no
            // other thread ends this timer, and that the entry is not accessed again.
            values.drop_one(unsafe { self.take() });
        }
    }
}

impl<T> Entry<T> {
    /// Stores the value of a timer that is about to be armed.
    ///
    /// # Safety
    ///
    /// - The caller has claimed this vacant entry and not armed it yet.
    pub(crate) unsafe fn put(&self, value: T) {
        self.value.with_mut(|place| {
            // SAFETY: by the value rule, only the claimer accesses the value before `arm`.
            let place = unsafe { &mut *place };
            place.write(value);
        });
    }

    /// Takes the value of a timer that has ended.
    ///
    /// # Safety
    ///
    /// - The caller's `try_end` on this entry succeeded, and it has not released the entry.
    /// - It has not taken the value before.
    pub(crate) unsafe fn take(&self) -> T {
        self.value.with_mut(|place| {
            // SAFETY: by the value rule, only the thread that ended the timer accesses the value.
            let place = unsafe { &*place };
            // SAFETY: the inserter stored the value before the `arm` that this thread's `try_end`
            // read (Release, Acquire), and it is taken once.
            unsafe { place.assume_init_read() }
        })
    }
}
