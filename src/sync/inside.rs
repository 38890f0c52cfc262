//! [`Inside`]: what the current thread is in the middle of, so that it does not wait for itself.

#![forbid(unsafe_code)]

use super::thread_local;
use std::cell::RefCell;

thread_local! {
    /// The addresses of what was entered, the innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, the thread is in the middle of something: handlers of a driver, a load of a
/// cache, or a call of its listener.
pub(crate) struct Inside(());

impl Inside {
    /// `what` must stay where it is while this lives.
    pub(crate) fn enter<T>(what: &T) -> Self {
        INSIDE.with(|inside| inside.borrow_mut().push(address(what)));
        Self(())
    }

    /// Whether the current thread is in the middle of it.
    pub(crate) fn is<T>(what: &T) -> bool {
        INSIDE.with(|inside| inside.borrow().contains(&address(what)))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // They end in the reverse order of their beginnings.
        INSIDE.with(|inside| inside.borrow_mut().pop());
    }
}

fn address<T>(what: &T) -> usize {
    std::ptr::from_ref(what).addr()
}
