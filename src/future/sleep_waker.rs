//! [`SleepWaker`]: a waker that lies in the wheel.

#![forbid(unsafe_code)]

use crate::panics::quietly;
use std::fmt;
use std::task::Waker;

/// What the wheel of a [`Timer`](super::Timer) holds: the waker of a task that sleeps.
///
/// It wakes the task when it is dropped, so that whatever becomes of it the task polls again.
///
/// # Examples
///
/// A turn of an event loop that sweeps for its futures:
///
/// ```
/// use std::pin::pin;
/// use std::task::{Context, Poll, Waker};
/// use std::time::{Duration, Instant};
/// use tourbillon::future::{Timer, SleepWaker};
/// use tourbillon::{Builder, ManualClock, Sweeper};
///
/// fn turn(sweeper: &mut Sweeper<SleepWaker>) -> Option<Instant> {
///     sweeper.sweep(|timer| timer.value.wake()).next_deadline
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let mut sleep = pin!(Timer::new(wheel).sleep(Duration::from_secs(1)));
/// let mut context = Context::from_waker(Waker::noop()); // a task's
/// assert!(sleep.as_mut().poll(&mut context).is_pending());
/// clock.advance(Duration::from_secs(1));
/// let _until = turn(&mut sweeper);
/// assert_eq!(sleep.poll(&mut context), Poll::Ready(Ok(())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SleepWaker(Option<Waker>);

impl SleepWaker {
    /// A clone of a waker, and how to know that waker again while the clone lies in the wheel.
    pub(super) fn of(waker: &Waker) -> (Self, WakerIdentity) {
        let clone = waker.clone();
        let identity = WakerIdentity { data: clone.data().addr(), ..WakerIdentity::of(waker) };
        (Self(Some(clone)), identity)
    }

    /// Wakes the task: the handler for whoever sweeps the wheel.
    pub fn wake(self) {
        drop(self);
    }

    /// Wakes the task; a waker that panics has nobody to tell.
    pub(super) fn wake_quietly(self) {
        quietly(|| self.wake());
    }

    /// Drops the waker unused.
    pub(super) fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for SleepWaker {
    fn drop(&mut self) {
        let Some(waker) = self.0.take() else {
            return;
        };
        match std::thread::panicking() {
            // A second panic would end the program.
            true => quietly(|| waker.wake()),
            false => waker.wake(),
        }
    }
}

impl fmt::Debug for SleepWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SleepWaker").finish_non_exhaustive()
    }
}

/// Which waker lies in the wheel, as far as a sleep remembers it: enough to know it again while it
/// lies there, without holding the task.
///
/// The data is the clone's, which lives as long as the clone: a waker that only refers to a place
/// of its executor has clones with other data, and the same place may be another task's next time.
/// (Such a waker is never known again, and put into the wheel at each poll.) The table is that of
/// the waker itself, since a clone may have a copy of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct WakerIdentity {
    data: usize,
    vtable: usize,
}

impl WakerIdentity {
    #[inline]
    pub(super) fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() }
    }
}
