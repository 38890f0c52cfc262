//! [`Inside`]: a record of what the current thread is in the middle of, so that it does not wait
//! for itself.

#![forbid(unsafe_code)]

use super::thread_local;
use std::cell::RefCell;

thread_local! {
    /// The addresses of the objects that were entered, the innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A guard for the time in which the thread is in the middle of something, such as a driver's
/// handlers, a load of a cache or a call of its listener.
pub(crate) struct Inside(());

impl Inside {
    /// Enters `what`, which must not move while the guard lives.
    pub(crate) fn enter<T>(what: &T) -> Self {
        INSIDE.with(|inside| inside.borrow_mut().push(address(what)));
        Self(())
    }

    /// Returns `true` if the current thread is in the middle of `what`.
    pub(crate) fn is<T>(what: &T) -> bool {
        INSIDE.with(|inside| inside.borrow().contains(&address(what)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Guards are dropped in the reverse order of their creation.
        INSIDE.with(|inside| inside.borrow_mut().pop());
    }
}

fn address<T>(what: &T) -> usize {
    std::ptr::from_ref(what).addr()
}
