//! [`Deadline`]: the time when a request becomes worthless, for all work on its behalf.

#![forbid(unsafe_code)]

use super::timer::Timer;
use crate::WheelInstant;
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

thread_local! {
    /// The deadline of the code that this thread is polling or running.
    static CURRENT: Cell<Option<Deadline>> = const { Cell::new(None) };
}

/// The time when a request becomes worthless.
///
/// It applies to all work on behalf of the request, so that no part waits longer than the caller of
/// the whole. Futures that are created in its [scope](Self::scope) are subject to it. A
/// [`Timer::timeout`] ends at the deadline with
/// [`TimeoutError::Deadline`](super::TimeoutError::Deadline) if its own limit is not sooner, and so
/// does each timeout that is built on it, such as the timeouts of the features `tower` and `http`.
/// Sleeps and intervals are not affected. Neither are the limits of an `io::TimeoutStream`, which
/// outlives a request. Use its `set_deadline` instead. A spawned task has no deadline unless it is
/// given its own scope.
///
/// A timeout reports a deadline in the same way as the end of its own limit. On a timer with a
/// driver, or if it notices the deadline late, it first [polls its future once
/// more](super::Timeout), so that an answer that the system received in time wins. Code that reads
/// a deadline itself, such as the server's side of gRPC, has no such grace, because the client does
/// not read an answer after the deadline.
///
/// This is like Go's `context.WithDeadline` and gRPC's
/// [deadlines](https://grpc.io/docs/guides/deadlines/), which the feature `http` takes from
/// requests and adds to them.
///
/// # Examples
///
/// Three steps of five seconds each, with six seconds for all of them, in virtual time:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::future::{Deadline, Timer, TimeoutError};
/// use tourbillon::testing;
///
/// async fn step(timer: &Timer, seconds: u64) -> Result<(), TimeoutError> {
///     let work = timer.sleep(Duration::from_secs(seconds));
///     timer.timeout(Duration::from_secs(5), async { work.await.unwrap() }).await
/// }
///
/// testing::block_on(|timer| async move {
///     let start = timer.now();
///     let request = async {
///         step(&timer, 2).await?;
///         step(&timer, 3).await?;
///         step(&timer, 4).await
///     };
///     let whole = Deadline::at(start + Duration::from_secs(6)).scope(request);
///     assert_eq!(whole.await, Err(TimeoutError::Deadline));
///     assert_eq!(timer.now() - start, Duration::from_secs(6));
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(Instant);

impl Deadline {
    /// Creates a deadline at an instant, on the clock of the timers that are to respect it.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// Returns the instant.
    #[must_use]
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// Returns the time that is left at `now`, or zero if the deadline has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::future::Deadline;
    ///
    /// let now = Instant::now();
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Deadline::at(now + second).left(now), second);
    /// assert_eq!(Deadline::at(now).left(now + second), Duration::ZERO);
    /// ```
    #[must_use]
    pub fn left(self, now: Instant) -> Duration {
        self.0.saturating_duration_since(now)
    }

    /// Returns the deadline that applies to the caller. It is the soonest deadline of all scopes
    /// around the caller.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::future::Deadline;
    ///
    /// let soon = Deadline::at(Instant::now() + Duration::from_secs(1));
    /// let late = Deadline::at(soon.instant() + Duration::from_secs(1));
    /// assert_eq!(late.run(|| soon.run(Deadline::current)), Some(soon));
    /// assert_eq!(soon.run(|| late.run(Deadline::current)), Some(soon));
    /// assert_eq!(Deadline::current(), None);
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        // A thread that is being torn down has none.
        CURRENT.try_with(Cell::get).ok().flatten()
    }

    /// Runs a function under the deadline, or under the outer one if that is sooner.
    pub fn run<R>(self, function: impl FnOnce() -> R) -> R {
        let outer = Self::current();
        let _restored = RestoreDeadline(outer);
        set(Some(outer.map_or(self, |outer| outer.min(self))));
        function()
    }

    /// Wraps a future so that it is polled under the deadline, or under the outer one if that is
    /// sooner. The deadline does not end the future itself, but its timeouts.
    ///
    /// A timeout is subject to the deadline that applies when it is created. Write `scope(async {
    /// client.call(request).await })`, which creates the call in the scope, and not
    /// `scope(client.call(request))`, which creates it before.
    pub fn scope<F: IntoFuture>(self, future: F) -> WithDeadline<F::IntoFuture> {
        WithDeadline { future: future.into_future(), deadline: self }
    }
}

fn set(current: Option<Deadline>) {
    let _torn_down = CURRENT.try_with(|cell| cell.set(current));
}

/// Restores the previous deadline, also after a panic.
struct RestoreDeadline(Option<Deadline>);

impl Drop for RestoreDeadline {
    fn drop(&mut self) {
        set(self.0);
    }
}

impl Timer {
    /// Returns the sooner of `at` and the deadline that applies to the caller.
    pub(super) fn respecting_deadline(&self, at: WheelInstant) -> WheelInstant {
        Deadline::current()
            .map_or(at, |Deadline(instant)| at.min(self.wheel().wheel_instant(instant)))
    }
}

pin_project! {
    /// A future under a deadline; created by [`Deadline::scope`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::future::Deadline;
    ///
    /// let deadline = Deadline::at(Instant::now() + Duration::from_secs(1));
    /// let request = deadline.scope(async { Deadline::current() });
    /// assert_eq!(pollster::block_on(request), Some(deadline));
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct WithDeadline<F> {
        #[pin]
        future: F,
        deadline: Deadline,
    }
}

impl<F> WithDeadline<F> {
    /// Returns the deadline.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// Returns the inner future, without the deadline.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for WithDeadline<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.deadline.run(|| this.future.poll(context))
    }
}
