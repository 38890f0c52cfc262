//! A process that is forked without `exec`, as a daemon is: it has none of the driver's threads.

use std::sync::mpsc;
use std::time::Duration;
use tourbillon::{Builder, Driver, Expired, Refusal};

const HOUR: Duration = Duration::from_secs(3600);

/// Runs `child` in a forked process, which ends after a minute at the latest. It has to hold.
fn in_a_child(child: impl FnOnce() -> bool) {
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

fn driver() -> Driver<u32> {
    Builder::new().driver().spawn(|_: Expired<u32>| ()).unwrap()
}

#[test]
fn inserts_are_refused_in_a_child() {
    let driver = driver();
    let armed = driver.wheel().insert(1, HOUR).unwrap();
    in_a_child(|| {
        let refused = driver.wheel().insert(2, HOUR).unwrap_err();
        (refused.reason, refused.value) == (Refusal::Closed, 2)
    });
    assert_eq!(driver.wheel().insert(3, HOUR).map(|id| driver.wheel().cancel(id)), Ok(Some(3)));
    assert_eq!(driver.wheel().cancel(armed), Some(1), "the parent goes on");
}

#[test]
fn a_shutdown_in_a_child_waits_for_no_thread() {
    let driver = driver();
    driver.wheel().insert(1, HOUR).unwrap();
    in_a_child(|| {
        let returned: Vec<u32> = driver.shutdown().iter().map(|timer| timer.value).collect();
        driver.wait().unwrap();
        returned == [1]
    });
    assert_eq!(driver.shutdown().len(), 1, "the parent has its own");
}

#[test]
fn a_drop_in_a_child_waits_for_no_thread() {
    let driver = driver();
    in_a_child(move || {
        drop(driver);
        true
    });
}

#[test]
fn a_batch_under_way_at_the_fork_is_not_waited_for_in_a_child() {
    let (send, begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let driver = Builder::new().driver().spawn(move |_: Expired<u32>| {
        send.send(()).unwrap();
        let _ = released.lock().unwrap().recv();
    });
    let driver = driver.unwrap();
    driver.wheel().insert(1, Duration::ZERO).unwrap();
    crate::common::receive(&begun, 1);
    in_a_child(|| driver.wait().is_ok() && driver.shutdown().is_empty());
    drop(release);
}

#[test]
fn a_driver_that_a_child_starts_fires_there() {
    // The shared pool of the parent is of no use to the child.
    let parent = driver();
    in_a_child(|| {
        let (send, fired) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let driver = Builder::new().driver().batch(1).spawn(move |timer: Expired<u32>| {
            send.send(timer.value).unwrap();
            let _ = released.lock().map(|released| released.recv());
        });
        let driver = driver.unwrap();
        driver.wheel().insert(1, Duration::ZERO).unwrap();
        driver.wheel().insert(2, Duration::from_millis(5)).unwrap();
        let mut values = crate::common::receive(&fired, 1);
        drop(release);
        values.extend(crate::common::receive(&fired, 1));
        values.sort_unstable();
        values == [1, 2]
    });
    drop(parent);
}
