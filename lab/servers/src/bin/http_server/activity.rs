//! The idle time of a connection, from the number of requests that are in progress and the end of
//! the last one.

use crate::timers::Timers;
use hyper::Version;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) struct Activity<T> {
    timers: Arc<T>,
    state: Mutex<State>,
}

struct State {
    /// `true` after the first request.
    began: bool,
    under_way: usize,
    /// The instant when the connection was accepted, or the last request ended.
    since: Instant,
    /// Set by the first HTTP/1 request and never cleared.
    is_hypers: bool,
}

/// A request that is in progress until this is dropped.
pub(crate) struct UnderWay<T: Timers>(Arc<Activity<T>>);

impl<T: Timers> Activity<T> {
    pub(crate) fn new(timers: Arc<T>) -> Arc<Self> {
        let state = State { began: false, under_way: 0, since: timers.now(), is_hypers: false };
        Arc::new(Self { timers, state: Mutex::new(state) })
    }

    pub(crate) fn begin(self: &Arc<Self>, version: Version) -> UnderWay<T> {
        let mut state = self.state();
        state.began = true;
        state.under_way += 1;
        state.is_hypers |= version < Version::HTTP_2;
        UnderWay(Arc::clone(self))
    }

    /// Waits until no request has been in progress for `limit`, and returns `true` if there has
    /// been one.
    ///
    /// Never ends for HTTP/1 after its first request, because hyper's timeout for the next head
    /// counts from the end of the last answer and closes an idle connection. HTTP/2 has no such
    /// timeout. Its pings detect peers that are gone, but not peers that request nothing. In
    /// addition, hyper-util's server waits without limit for the first bytes, which tell it the
    /// version.
    pub(crate) async fn has_ended(&self, limit: Duration) -> bool {
        let mut sleep = pin!(self.timers.sleep(limit));
        loop {
            sleep.as_mut().await;
            // A timer is not moved for each request. When it fires, it computes the remaining time.
            match self.idle_at(limit) {
                Some(deadline) if deadline <= self.timers.now() => return self.state().began,
                Some(deadline) => T::reset(sleep.as_mut(), deadline),
                None => std::future::pending().await,
            }
        }
    }

    /// The earliest time when the connection has been idle for `limit`, or `None` if hyper enforces
    /// the limit.
    fn idle_at(&self, limit: Duration) -> Option<Instant> {
        let state = self.state();
        let since = if state.under_way > 0 { self.timers.now() } else { state.since };
        if state.is_hypers { None } else { since.checked_add(limit) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Timers> Drop for UnderWay<T> {
    fn drop(&mut self) {
        let now = self.0.timers.now();
        let mut state = self.0.state();
        state.under_way -= 1;
        state.since = now;
    }
}
