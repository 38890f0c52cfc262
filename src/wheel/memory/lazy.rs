//! [`Lazy`]: a value that is made when it is first needed.

use super::{boxed_slice, try_boxed};
use crate::sync::{Acquire, AtomicPtr, Relaxed, Release};
use std::marker::PhantomData;
use std::ptr;

/// A value in memory of its own, which is made when a thread first needs it, and then stays for as
/// long as this exists.
///
/// It differs from the usual cells of this kind in two ways. A lack of memory is reported, and
/// threads that make the value at the same time do not wait for each other: one of them publishes
/// what it has made, and the others drop theirs.
#[derive(Debug)]
pub(crate) struct Lazy<V: Send + Sync> {
    value: AtomicPtr<V>,
    /// The value, in a model that does not explore when it is made.
    #[cfg(modelled)]
    early: Option<Box<V>>,
    owns: PhantomData<Box<V>>,
}

impl<V: Send + Sync> Lazy<V> {
    /// Creates a place for a value that is made later. Models make it at once, by `_early`, unless
    /// they explore this.
    pub(crate) fn new(_early: impl FnOnce() -> V) -> Self {
        Self {
            value: AtomicPtr::new(ptr::null_mut()),
            #[cfg(modelled)]
            early: (!EXPLORED.get()).then(|| Box::new(_early())),
            owns: PhantomData,
        }
    }

    /// Returns the value, if it has been made.
    #[inline]
    pub(crate) fn get(&self) -> Option<&V> {
        #[cfg(modelled)]
        if let Some(early) = &self.early {
            return Some(early);
        }
        // Acquire: pairs with the Release of `get_or_make`, so that the value is seen.
        let value = self.value.load(Acquire);
        // SAFETY: null, or a value that `get_or_make` has published. It is only shared from then
        // on, and lives as long as `self`.
        unsafe { value.as_ref() }
    }

    /// Returns the value, after making it if necessary. Returns `None` if there is no memory for
    /// it.
    #[cold]
    pub(crate) fn get_or_make(&self, make: impl FnMut() -> V) -> Option<&V> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        let made = try_boxed(1, make)?;
        // Release on success: publishes the value to `get`.
        // Relaxed on failure: `get` reads the value of the thread that was faster.
        if self.value.compare_exchange(ptr::null_mut(), made, Release, Relaxed).is_err() {
            // SAFETY: made just above as a boxed slice of this length, and not published.
            drop(unsafe { boxed_slice(made, 1) });
        }
        self.get()
    }
}

impl<V: Send + Sync> Drop for Lazy<V> {
    fn drop(&mut self) {
        // Relaxed: `&mut self` already orders everything before this.
        let value = self.value.load(Relaxed);
        if !value.is_null() {
            // SAFETY: made by `get_or_make` as a boxed slice of this length. No thread uses it any
            // more, because `self` is being dropped.
            drop(unsafe { boxed_slice(value, 1) });
        }
    }
}

#[cfg(modelled)]
std::thread_local! {
    static EXPLORED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Has the models of this thread of the system explore when values are made, or not. Each operation
/// reads some of them, which would multiply the executions of every model.
#[cfg(modelled)]
pub(crate) fn explore(explored: bool) {
    EXPLORED.set(explored);
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::Lazy;
    use std::sync::Arc;

    #[test]
    fn a_value_is_made_once_and_dropped_with_its_place() {
        let (value, lazy) = (Arc::new(()), Lazy::new(Arc::default));
        assert!(lazy.get().is_none());
        let made = |_| {
            lazy.get_or_make(|| Arc::clone(&value)).is_some_and(|made| Arc::ptr_eq(made, &value))
        };
        assert!((0..2).all(made) && lazy.get().is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(lazy);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
