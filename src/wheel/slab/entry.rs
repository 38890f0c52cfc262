//! The slab entry: where one timer lives.
//!
//! | field | written by | read by |
//! |---|---|---|
//! | `state` | the claimer (arm), then any thread by exchange | any thread |
//! | `next_visit` | see [`super::next_visit`] | sweeper, resetters, claimers |
//! | `value` | the claimer, before `arm` | the thread whose `try_end` succeeded, once |
//!
//! I3 in [`crate::wheel`] says which thread may touch `value`.

use super::next_visit::AtomicNextVisit;
use super::slab_item::SlabItem;
use super::state::AtomicEntryState;
use crate::panics::DropEach;
use crate::sync::UnsafeCell;
use crate::wheel::memory::Zeroable;
use std::mem::MaybeUninit;

/// One place for one timer.
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

// SAFETY: all zeros is a vacant state of the first generation, a next visit that tells of nothing
// and a value that is not there, as by default. State and `next_visit` are atomic; the value is in
// a cell, which by I3 no thread touches while the entry is vacant.
unsafe impl<T> Zeroable for Entry<T> {
    #[cfg(any(modelled, tiny))]
    fn zero(&self) {
        self.state.zero();
        self.next_visit.store(AtomicNextVisit::NONE);
    }
}

// SAFETY: sharing an entry moves values of `T` between threads, by I3, which `T: Send`
// allows; no two threads ever touch the same value at a time, so `T` need not be `Sync`.
unsafe impl<T: Send> Sync for Entry<T> {}

impl<T> SlabItem for Entry<T> {
    #[inline]
    fn state(&self) -> &AtomicEntryState {
        &self.state
    }

    #[inline]
    fn reinit(&self) {
        self.next_visit.store(AtomicNextVisit::NONE);
    }

    unsafe fn drop_value(&self, values: &mut DropEach) {
        if self.state.load().is_armed() {
            // SAFETY: the generation is odd, so the value is there; the caller vouches that nobody
            // else ends this timer, and that it is not looked at again.
            values.drop_one(unsafe { self.take() });
        }
    }
}

impl<T> Entry<T> {
    /// Puts the value of a timer about to be armed.
    ///
    /// # Safety
    ///
    /// - The caller has claimed this vacant entry and not armed it yet.
    pub(crate) unsafe fn put(&self, value: T) {
        self.value.with_mut(|place| {
            // SAFETY: by I3 the claimer alone touches the value before `arm`.
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
            // SAFETY: by I3 the ender alone touches the value.
            let place = unsafe { &*place };
            // SAFETY: the inserter put the value before the `arm` that the ender's `try_end`
            // read (Release, Acquire), and it is taken once.
            unsafe { place.assume_init_read() }
        })
    }
}
