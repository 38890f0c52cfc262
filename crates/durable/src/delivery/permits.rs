//! [`Permits`], a semaphore for the deliveries of a worker.
//!
//! A delivery acquires a permit before it requests its lease. **A store that does not reply must
//! not take all permits.** A delivery that waits long therefore releases its permit. It is still in
//! progress but no longer counts. Once the reply has arrived and there is a handler to run, the
//! delivery reacquires a permit, with precedence over new deliveries. At most the configured number
//! of handlers run, and at most [`MAX_RELEASED`] more deliveries are in progress. Beyond that
//! number deliveries keep their permits.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// The maximum number of deliveries in progress without a permit.
const MAX_RELEASED: usize = 4096;

/// The permits of a worker.
#[derive(Debug)]
pub(crate) struct Permits(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
    free: usize,
    released: usize,
    /// The number of deliveries that wait to reacquire a permit.
    waiting: usize,
    wakers: Vec<Waker>,
}

/// The state of a delivery's permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermitState {
    Held,
    Released,
    Waiting,
}

/// The permit of one delivery, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    state: PermitState,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        Self(Mutex::new(Counts { free: count, released: 0, waiting: 0, wakers: Vec::new() }))
    }

    /// Returns a permit for a new delivery, or `None` if every free permit is needed for a delivery
    /// that waits for one.
    pub(crate) fn try_acquire(self: &Arc<Self>) -> Option<Permit> {
        let mut counts = self.lock();
        if counts.free <= counts.waiting {
            return None;
        }
        counts.free -= 1;
        Some(Permit { permits: Arc::clone(self), state: PermitState::Held })
    }

    /// Changes the counts, and wakes waiting deliveries after releasing the lock.
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.lock();
        change(&mut counts);
        let woken = if counts.free == 0 { Vec::new() } else { std::mem::take(&mut counts.wakers) };
        drop(counts);
        woken.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        ignore_poison(self.0.lock())
    }
}

impl Permit {
    /// Releases the permit while the delivery waits for a reply, unless too many deliveries have
    /// done so.
    pub(crate) fn release(&mut self) {
        let Self { permits, state } = self;
        permits.change(|counts| {
            if *state == PermitState::Held && counts.released < MAX_RELEASED {
                *state = PermitState::Released;
                counts.released += 1;
                counts.free += 1;
            }
        });
    }

    /// Waits until the permit is held again.
    pub(crate) async fn reacquire(&mut self) {
        std::future::poll_fn(|context| {
            let mut counts = self.permits.lock();
            if self.state == PermitState::Released {
                self.state = PermitState::Waiting;
                counts.waiting += 1;
            }
            if self.state == PermitState::Waiting {
                if counts.free == 0 {
                    counts.wakers.push(context.waker().clone());
                    return Poll::Pending;
                }
                self.state = PermitState::Held;
                counts.free -= 1;
                counts.released -= 1;
                counts.waiting -= 1;
            }
            Poll::Ready(())
        })
        .await;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.change(|counts| match self.state {
            PermitState::Held => counts.free += 1,
            PermitState::Released => counts.released -= 1,
            PermitState::Waiting => {
                counts.released -= 1;
                counts.waiting -= 1;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::task::{Context, Wake};

    #[test]
    fn a_permit_is_reacquired_before_a_new_one_is_granted() {
        let permits = Arc::new(Permits::new(1));
        let mut first = permits.try_acquire().expect("it is free");
        assert!(permits.try_acquire().is_none());
        first.release();
        first.release();
        let second = permits.try_acquire().expect("it was given back");
        assert!(permits.try_acquire().is_none(), "once");
        {
            let mut back = std::pin::pin!(first.reacquire());
            assert!(back.as_mut().now_or_never().is_none());
            drop(second);
            assert!(permits.try_acquire().is_none(), "it is waiting");
            assert!(back.as_mut().now_or_never().is_some());
        }
        assert!(permits.try_acquire().is_none());
        drop(first);
        assert!(permits.try_acquire().is_some());
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn a_waiting_delivery_is_woken_when_a_permit_is_free() {
        let permits = Arc::new(Permits::new(1));
        let mut first = permits.try_acquire().expect("it is free");
        first.release();
        let second = permits.try_acquire().expect("it was given back");
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut back = std::pin::pin!(first.reacquire());
        assert!(back.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(!woken.0.load(SeqCst));
        drop(second);
        assert!(woken.0.load(SeqCst));
    }

    #[test]
    fn released_permits_are_bounded_and_leave_nothing_behind() {
        let permits = Arc::new(Permits::new(1));
        let release = || {
            let mut permit = permits.try_acquire()?;
            permit.release();
            Some(permit)
        };
        let mut released: Vec<Permit> = std::iter::from_fn(release).collect();
        assert_eq!(released.len(), MAX_RELEASED + 1, "one has kept its permit");
        assert!(released[0].reacquire().now_or_never().is_none());
        released.clear();
        let counts = permits.lock();
        assert_eq!((counts.free, counts.released, counts.waiting), (1, 0, 0));
    }
}
