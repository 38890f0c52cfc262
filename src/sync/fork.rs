//! Forked child processes: [`Process`] distinguishes a child from its parent, and [`SetInChild`]
//! sets a flag in the child.
//!
//! A fork copies the memory of a process but none of its other threads. An object that relies on
//! one of them, as a driver's wheel relies on its tick thread, would accept work in the child that
//! is never done. A lock that another thread held at the fork stays locked in the child forever.
//!
//! A handler of `pthread_atfork` runs on the child's only thread. It counts the fork and sets the
//! flags that are kept in a list. It uses nothing but atomics. Process ids would not do, because a
//! child in a namespace of its own may have the id of its parent.
//!
//! On systems without fork, under Miri and in models there is one process, and the flags are left
//! alone.

use crate::sync::{Arc, AtomicBool};
use std::io;

/// A process, distinguishable from its forked children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// Returns the current process.
    ///
    /// # Errors
    ///
    /// Fails if the system has no memory for the handler that distinguishes children from the
    /// process.
    pub(crate) fn current() -> io::Result<Self> {
        handler::register()?;
        Ok(Self(handler::forks()))
    }

    /// Returns `false` in a child of the process.
    pub(crate) fn is_current(self) -> bool {
        self.0 == handler::forks()
    }
}

/// An object with a flag to be set in child processes.
pub(crate) trait Flagged {
    /// The flag.
    fn flag(&self) -> &AtomicBool;
}

/// A guard that has the flag of its owner set in child processes while it lives.
#[derive(Debug)]
pub(crate) struct SetInChild<F: Flagged> {
    _slot: handler::FlagSlot,
    /// Keeps the flag alive. Dropped after its slot in the list.
    _owner: Arc<F>,
}

impl<F: Flagged> SetInChild<F> {
    /// Creates the guard. `_process` proves that the caller's handler is registered.
    pub(crate) fn new(owner: Arc<F>, _process: Process) -> Self {
        Self { _slot: handler::FlagSlot::new(owner.flag()), _owner: owner }
    }
}

#[cfg(all(unix, not(miri), not(modelled)))]
mod handler {
    use crate::sync::{Acquire, AtomicBool, Relaxed, Release};
    use std::io;
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, AtomicU32};

    /// The number of forks between the first process of the program and this one.
    static FORKS: AtomicU32 = AtomicU32::new(0);

    /// Not zero once the handler is registered.
    static REGISTERED: AtomicU32 = AtomicU32::new(0);

    /// The list only grows. Slots are reused and never freed.
    static FIRST: AtomicPtr<Node> = AtomicPtr::new(null_mut());

    #[derive(Debug)]
    struct Node {
        /// Null while the slot is vacant.
        flag: AtomicPtr<AtomicBool>,
        next: Option<&'static Node>,
    }

    /// A slot of the list, which is taken until this is dropped. The flag outlives it.
    #[derive(Debug)]
    pub(super) struct FlagSlot(&'static Node);

    impl FlagSlot {
        pub(super) fn new(flag: &AtomicBool) -> Self {
            let flag = std::ptr::from_ref(flag).cast_mut();
            let mut node = first();
            while let Some(vacant) = node {
                // Release: pairs with the Acquire of `note_fork`, which reads the flag that this
                // points to. Relaxed on failure: the next slot is tried.
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

    impl Drop for FlagSlot {
        fn drop(&mut self) {
            // Release: the slot is vacant before the memory of the flag is freed and reused.
            self.0.flag.store(null_mut(), Release);
        }
    }

    fn first() -> Option<&'static Node> {
        // Acquire: pairs with the Release of the exchange in `FlagSlot::new`.
        let first = FIRST.load(Acquire);
        // SAFETY: A node is never freed, and was complete when it was published.
        unsafe { first.as_ref() }
    }

    pub(super) fn forks() -> u32 {
        // Relaxed: all threads of a child come after its handler.
        FORKS.load(Relaxed)
    }

    /// Registers the handler unless that was done before.
    ///
    /// Threads that call this at the same time may register it several times, which is harmless.
    /// They do not wait for each other, because a fork may leave one of them behind.
    pub(super) fn register() -> io::Result<()> {
        // Acquire: pairs with the Release below, so that forks of this thread find the handler.
        if REGISTERED.load(Acquire) > 0 {
            return Ok(());
        }
        // SAFETY: The handler has the required signature, lives as long as the program and calls
        // nothing that is not safe in a signal handler.
        match unsafe { libc::pthread_atfork(None, None, Some(note_fork)) } {
            0 => {
                // Release: pairs with the Acquire above.
                REGISTERED.store(1, Release);
                Ok(())
            }
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The handler in the child: counts the fork and sets all flags.
    extern "C" fn note_fork() {
        // Relaxed: all threads of the child come after this.
        FORKS.fetch_add(1, Relaxed);
        let mut node = first();
        while let Some(slot) = node {
            // Acquire: pairs with the Release of the exchange in `FlagSlot::new`.
            let flag = slot.flag.load(Acquire);
            // SAFETY: The owner of a slot keeps the flag alive until the slot is vacant, and no
            // other thread runs in the child that could make it so now.
            if let Some(flag) = unsafe { flag.as_ref() } {
                // Relaxed: all threads of the child come after this.
                flag.store(true, Relaxed);
            }
            node = slot.next;
        }
    }

    #[cfg(test)]
    mod tests {
        use super::{AtomicBool, FlagSlot, first};
        use std::iter;

        #[test]
        fn the_slot_of_a_flag_that_has_gone_is_used_again() {
            const FLAGS: usize = 2000;
            let slots = || iter::successors(first(), |slot| slot.next).count();
            let (flag, before) = (AtomicBool::new(false), slots());
            for _ in 0..FLAGS {
                drop(FlagSlot::new(&flag));
            }
            // Other tests have flags of their own.
            assert!(slots() - before < FLAGS / 2);
        }
    }
}

#[cfg(not(all(unix, not(miri), not(modelled))))]
mod handler {
    use super::AtomicBool;
    use std::io;

    pub(super) fn forks() -> u32 {
        0
    }

    pub(super) fn register() -> io::Result<()> {
        Ok(())
    }

    #[derive(Debug)]
    pub(super) struct FlagSlot;

    impl FlagSlot {
        pub(super) fn new(_flag: &AtomicBool) -> Self {
            Self
        }
    }
}
