//! Requests of a durable store that arrive while the task that sends them is about to end. The lock
//! of the queue decides whether the push starts another task or that task takes the request.

use loom_tests::explorer::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom_tests::explorer::thread;
use loom_tests::{Requests, model};
use std::sync::Arc;

/// Adds a request, and sends what waits if no other thread does. Returns the batches it has sent.
fn push(queue: &Requests, is_sending: &AtomicBool, request: u64) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    if queue.push(request) {
        while let Some(batch) = queue.take() {
            assert!(!is_sending.swap(true, SeqCst), "two batches are in flight");
            sent.push(batch);
            is_sending.store(false, SeqCst);
        }
    }
    sent
}

#[test]
fn no_request_is_left_behind() {
    model(3, || {
        let shared = Arc::new((Requests::default(), AtomicBool::new(false)));
        let others = [1, 2].map(|request| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || push(&shared.0, &shared.1, request))
        });
        let mut sent = push(&shared.0, &shared.1, 4);
        for other in others {
            sent.extend(other.join().unwrap());
        }
        sent.sort_unstable();
        let numbers: Vec<u64> = sent.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(sent.iter().map(|(_, request)| request).sum::<u64>(), 7, "lost or doubled");
    });
}
