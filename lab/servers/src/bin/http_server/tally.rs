//! Counters of the server.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Default)]
pub(crate) struct Tally {
    accepted: AtomicU64,
    requests: AtomicU64,
    fired: AtomicU64,
    live: AtomicU64,
}

impl Tally {
    /// Counts an accepted connection, which is live until the returned guard is dropped.
    pub(crate) fn accept(self: &Arc<Self>) -> Live {
        self.accepted.fetch_add(1, Relaxed);
        self.live.fetch_add(1, Relaxed);
        Live(Arc::clone(self))
    }

    /// Counts a request whose head was read.
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts a timeout that ended something.
    pub(crate) fn fire(&self) {
        self.fired.fetch_add(1, Relaxed);
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn fired(&self) -> u64 {
        self.fired.load(Relaxed)
    }

    pub(crate) fn live(&self) -> u64 {
        self.live.load(Relaxed)
    }
}

/// A connection that is counted.
pub(crate) struct Live(Arc<Tally>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
    }
}
