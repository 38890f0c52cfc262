//! A driver in a process whose global pool cannot be built, as where no thread can be started: a
//! process of its own, since that cannot be undone.

#![cfg(feature = "rayon")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[test]
fn batches_run_while_the_worker_is_busy_also_without_a_pool() {
    let none = rayon::ThreadPoolBuilder::new()
        .spawn_handler(|_| Err(std::io::ErrorKind::OutOfMemory.into()))
        .build_global();
    assert!(none.is_err());
    common::busy::batches_run_while_the_worker_is_busy();
}
