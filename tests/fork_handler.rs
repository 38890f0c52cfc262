//! A system that refuses the handler for forked children at first, and later gives a child the
//! process id of its parent. One test alone, since there is one process.

#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/child.rs"]
mod child;

use child::in_a_child;
use libc::{c_int, c_void, pid_t};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tourbillon::{BuildError, Builder, Driver, Expired, Refusal};

type ForkHandler = Option<unsafe extern "C" fn()>;

/// The number of handlers that the program wanted to register.
static WANTED: AtomicU32 = AtomicU32::new(0);

unsafe extern "C" {
    /// The function that the system's `pthread_atfork` calls.
    fn __register_atfork(
        prepare: ForkHandler,
        parent: ForkHandler,
        child: ForkHandler,
        library: *mut c_void,
    ) -> c_int;
}

/// Takes the place of the system's function in this program. It refuses the first call.
///
/// # Safety
///
/// - As for the system's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_atfork(
    prepare: ForkHandler,
    parent: ForkHandler,
    child: ForkHandler,
) -> c_int {
    if WANTED.fetch_add(1, Relaxed) == 0 {
        return libc::ENOMEM;
    }
    // SAFETY: As required of the caller. The handlers belong to the program, and so are never
    // unloaded.
    unsafe { __register_atfork(prepare, parent, child, null_mut()) }
}

/// Takes the place of the system's function in this program, as if each process were the first of
/// a namespace of its own.
#[unsafe(no_mangle)]
extern "C" fn getpid() -> pid_t {
    1
}

fn spawn() -> Result<Driver<u32>, BuildError> {
    Builder::new().driver().spawn(|_: Expired<u32>| ())
}

#[test]
fn a_handler_that_was_refused_is_registered_later_and_needs_no_process_ids() {
    assert_eq!(std::process::id(), 1);
    let Err(BuildError::ForkHandler(error)) = spawn() else {
        panic!("a driver without a handler");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));

    let driver = spawn().unwrap();
    let hour = Duration::from_secs(3600);
    driver.wheel().insert(1, hour).unwrap();
    in_a_child(|| {
        let refused = driver.wheel().insert(2, hour).unwrap_err();
        // It would wait for the last sweep of the parent's tick thread.
        refused.reason == Refusal::Closed && driver.shutdown().len() == 1
    });
    assert_eq!(driver.shutdown().len(), 1);
    // One handler does for all drivers, and the system keeps each that it gets.
    drop(spawn().unwrap());
    assert_eq!(WANTED.load(Relaxed), 2);
}
