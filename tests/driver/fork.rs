//! A process that is forked without `exec`, as a daemon is, and has none of the driver's threads.

use crate::common::child::in_a_child;
use crate::common::receive;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tourbillon::{Builder, Driver, ExecutorJob, Expired, Refusal};

const HOUR: Duration = Duration::from_secs(3600);

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
    receive(&begun, 1);
    in_a_child(|| driver.wait().is_ok() && driver.shutdown().is_empty());
    drop(release);
}

#[test]
fn a_job_that_a_child_has_a_copy_of_is_run_or_dropped_there() {
    let (send, jobs) = mpsc::channel::<ExecutorJob>();
    let (fire, fired) = mpsc::channel();
    let driver = Builder::new().driver().batch(1).executor(move |job| send.send(job).unwrap());
    let handler = move |timer: Expired<Arc<()>>| fire.send(timer.value).unwrap();
    let driver = driver.spawn(handler).unwrap();
    let value = Arc::new(());
    for _ in 0..2 {
        driver.wheel().insert(Arc::clone(&value), Duration::ZERO).unwrap();
    }
    let [run, dropped]: [ExecutorJob; 2] = receive(&jobs, 2).try_into().ok().unwrap();
    in_a_child(move || {
        run();
        drop(dropped);
        drop(receive(&fired, 1));
        Arc::strong_count(&value) == 1 && driver.shutdown().is_empty()
    });
}

#[test]
fn a_driver_that_a_child_starts_fires_there() {
    // The child has none of the parent's workers.
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
        let mut values = receive(&fired, 1);
        drop(release);
        values.extend(receive(&fired, 1));
        values.sort_unstable();
        values == [1, 2]
    });
    drop(parent);
}
