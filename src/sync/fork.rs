//! [`SetInChild`]: a flag that is set in every child process forked from this one.
//!
//! A fork copies the memory of a process but none of its other threads. What relies on one of them,
//! as a driver's wheel does on its tick thread, would accept work in the child that is never done.
//! The flags that have to be set are kept in a list, which a handler of `pthread_atfork` walks in
//! the child. The handler runs on the child's only thread and uses nothing but atomics, because a
//! lock that another thread held at the fork stays locked there forever.
//!
//! Where there is no fork, under Miri and in models the flags are left alone.

use crate::sync::{Arc, AtomicBool};

/// An object with a flag to be set in child processes.
pub(crate) trait Flagged {
    /// The flag.
    fn flag(&self) -> &AtomicBool;
}

/// While this lives, a child process finds the flag of its owner set.
#[derive(Debug)]
pub(crate) struct SetInChild<F: Flagged> {
    _place: list::Place,
    /// Keeps the flag where it is. Dropped after its place in the list.
    _owner: Arc<F>,
}

impl<F: Flagged> SetInChild<F> {
    pub(crate) fn new(owner: Arc<F>) -> Self {
        Self { _place: list::Place::new(owner.flag()), _owner: owner }
    }
}

#[cfg(all(unix, not(miri), not(modelled)))]
mod list {
    use crate::sync::{Acquire, AtomicBool, Relaxed, Release};
    use std::ptr::null_mut;
    use std::sync::Once;
    use std::sync::atomic::AtomicPtr;

    /// The list only grows: places are used again, and never freed.
    static FIRST: AtomicPtr<Node> = AtomicPtr::new(null_mut());

    #[derive(Debug)]
    struct Node {
        /// Null while the place is vacant.
        flag: AtomicPtr<AtomicBool>,
        next: Option<&'static Node>,
    }

    /// A place in the list, taken until it is dropped. The flag outlives it.
    #[derive(Debug)]
    pub(super) struct Place(&'static Node);

    impl Place {
        pub(super) fn new(flag: &AtomicBool) -> Self {
            static REGISTERED: Once = Once::new();
            REGISTERED.call_once(|| {
                // SAFETY: The handler has the signature that is asked for, lives as long as the
                // program and calls nothing that is not safe in a signal handler.
                let result = unsafe { libc::pthread_atfork(None, None, Some(set_all)) };
                debug_assert_eq!(result, 0, "there is memory for a handler");
            });
            let flag = std::ptr::from_ref(flag).cast_mut();
            let mut node = first();
            while let Some(vacant) = node {
                // Release: pairs with the Acquire of `set_all`, which reads the flag that this
                // points to. Relaxed on failure: the next place is tried.
                if vacant.flag.compare_exchange(null_mut(), flag, Release, Relaxed).is_ok() {
                    return Self(vacant);
                }
                node = vacant.next;
            }
            let flag = AtomicPtr::new(flag);
            let node = Box::into_raw(Box::new(Node { flag, next: None }));
            loop {
                let next = first();
                // SAFETY: The node is not published yet.
                unsafe { (*node).next = next };
                let head = next.map_or(null_mut(), |next| std::ptr::from_ref(next).cast_mut());
                // Release: pairs with the Acquire of `first`, which reads the node. Relaxed on
                // failure: `first` is read again.
                if FIRST.compare_exchange(head, node, Release, Relaxed).is_ok() {
                    // SAFETY: A node is never freed, and is not written again.
                    return Self(unsafe { &*node });
                }
            }
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            // Release: the place is vacant before the memory of the flag is freed and used again.
            self.0.flag.store(null_mut(), Release);
        }
    }

    fn first() -> Option<&'static Node> {
        // Acquire: pairs with the Release of the exchange in `Place::new`.
        let first = FIRST.load(Acquire);
        // SAFETY: A node is never freed, and was complete when it was published.
        unsafe { first.as_ref() }
    }

    /// Sets all flags: the handler in the child.
    extern "C" fn set_all() {
        let mut node = first();
        while let Some(place) = node {
            // Acquire: pairs with the Release of the exchange in `Place::new`.
            let flag = place.flag.load(Acquire);
            // SAFETY: The owner of a place keeps the flag alive until the place is vacant, and no
            // other thread runs in the child that could make it so now.
            if let Some(flag) = unsafe { flag.as_ref() } {
                // Relaxed: all threads of the child come after this.
                flag.store(true, Relaxed);
            }
            node = place.next;
        }
    }
}

#[cfg(not(all(unix, not(miri), not(modelled))))]
mod list {
    use super::AtomicBool;

    #[derive(Debug)]
    pub(super) struct Place;

    impl Place {
        pub(super) fn new(_flag: &AtomicBool) -> Self {
            Self
        }
    }
}
