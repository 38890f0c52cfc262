//! [`in_a_child`]: a process that is forked without `exec`.

/// Runs `child` in a forked process, which ends after a minute at the latest. It has to hold.
pub(crate) fn in_a_child(child: impl FnOnce() -> bool) {
    // SAFETY: The child uses locks of its own and of the allocator alone, which the system's fork
    // leaves usable, and ends without unwinding into the tests.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "the system forks");
    if process == 0 {
        // SAFETY: Only sets a timer of this process.
        unsafe { libc::alarm(60) };
        let holds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: Ends this process.
        unsafe { libc::_exit(i32::from(!holds.unwrap_or(false))) };
    }
    let mut status = 0;
    // SAFETY: `status` may be written.
    let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
    assert_eq!((waited, status), (process, 0), "the child holds, and ends by itself");
}
