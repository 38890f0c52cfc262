//! [`SleepWaker`]: a waker that is stored in the wheel.

#![forbid(unsafe_code)]

use crate::panics::quietly;
use std::fmt;
use std::task::Waker;

/// The waker of a sleeping task, as stored in the wheel of a [`Timer`](super::Timer).
///
/// It wakes the task when it is dropped, so the task polls again whatever happens to the value.
///
/// # Examples
///
/// One turn of an event loop that sweeps for its futures:
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
    /// Clones a waker, and returns the clone with its identity, to recognise it while it is in the
    /// wheel.
    pub(super) fn of(waker: &Waker) -> (Self, WakerIdentity) {
        let clone = waker.clone();
        let identity = WakerIdentity { data: clone.data().addr(), ..WakerIdentity::of(waker) };
        (Self(Some(clone)), identity)
    }

    /// Wakes the task. This is the handler for code that sweeps the wheel.
    pub fn wake(self) {
        drop(self);
    }

    /// Wakes the task and discards a panic of the waker, which no caller could handle.
    pub(super) fn wake_quietly(self) {
        quietly(|| self.wake());
    }

    /// Drops the waker without waking the task.
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
            // A second panic would abort the process.
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

/// The identity of a waker that is in the wheel. A sleep keeps it to recognise the waker without
/// keeping the task alive.
///
/// The data pointer comes from the clone, and is valid as long as the clone lives. A waker that
/// refers to a slot of its executor has clones with different data, and the same slot may belong to
/// a different task the next time. Such a waker is never recognised, and is inserted into the wheel
/// at each poll. The table comes from the waker itself, because a clone may have a copy of it.
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
