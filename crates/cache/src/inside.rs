//! [`Inside`]: what the current thread is running, so that it does not wait for itself.

#![forbid(unsafe_code)]

use std::cell::RefCell;

thread_local! {
    /// The addresses of the objects that were entered, the innermost last.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// While this lives, the thread is running a load of a cache, or a call of its listener.
///
/// A thread that ends may have lost its record already, and then enters nothing. Code that runs in
/// the destructors of its thread-locals has no caller that it could wait for.
pub(crate) struct Inside {
    is_recorded: bool,
}

impl Inside {
    /// Enters `what`, which must not move while the guard lives.
    pub(crate) fn enter<T>(what: &T) -> Self {
        let recorded = INSIDE.try_with(|inside| inside.borrow_mut().push(address(what)));
        Self { is_recorded: recorded.is_ok() }
    }

    /// Returns `true` if the current thread has entered `what`.
    pub(crate) fn is<T>(what: &T) -> bool {
        INSIDE.try_with(|inside| inside.borrow().contains(&address(what))).unwrap_or(false)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.is_recorded {
            // Guards are dropped in the reverse order of their creation.
            let _torn_down = INSIDE.try_with(|inside| inside.borrow_mut().pop());
        }
    }
}

fn address<T>(what: &T) -> usize {
    std::ptr::from_ref(what).addr()
}
