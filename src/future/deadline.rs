//! [`Deadline`]: until when a request is worth an answer, for all that is done for it.

#![forbid(unsafe_code)]

use super::timer::Timer;
use crate::WheelInstant;
use pin_project_lite::pin_project;
use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

thread_local! {
    /// Of what this thread polls or runs at present.
    static CURRENT: Cell<Option<Deadline>> = const { Cell::new(None) };
}

/// Until when a request is worth an answer: handed down to all that is done for it, so that no
/// part of the work waits longer than whoever asked for the whole.
///
/// Futures that are created in its [scope](Self::scope) are subject to it. A [`Timer::timeout`]
/// ends at the deadline with [`TimeoutError::Deadline`](super::TimeoutError::Deadline) if its own
/// limit is not sooner, and so does each timeout that is built on it, such as those of the features
/// `tower` and `http`. Sleeps and intervals are not affected. Neither are the limits of an
/// `io::TimeoutStream`, which outlives a request; use its `set_deadline` instead. A spawned task
/// has no deadline unless it is given its own scope.
///
/// A timeout reports a deadline as it reports the end of its own limit: on a timer with a driver it
/// first [polls its future once more](super::Timeout), so that an answer wins that the system
/// received in time. Code that asks a deadline itself, such as the server's side of gRPC, has no
/// such grace: after the deadline, the client does not read an answer any more.
///
/// As Go's `context.WithDeadline`, and gRPC's
/// [deadlines](https://grpc.io/docs/guides/deadlines/), which the feature `http` takes from
/// requests and puts into them.
///
/// # Examples
///
/// Three steps of five seconds, which have six together, in virtual time:
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
    /// One at an instant, by the clock of the timers that are to respect it.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// When it is.
    #[must_use]
    pub const fn instant(self) -> Instant {
        self.0
    }

    /// How much time is left; none if it has passed.
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

    /// The one that the caller is under: the soonest of those in whose scopes it is polled or run.
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
        // A thread that is being torn down is under none.
        CURRENT.try_with(Cell::get).ok().flatten()
    }

    /// Runs a function under the deadline; an outer one that is sooner stays.
    pub fn run<R>(self, function: impl FnOnce() -> R) -> R {
        let outer = Self::current();
        let _restored = RestoreDeadline(outer);
        set(Some(outer.map_or(self, |outer| outer.min(self))));
        function()
    }

    /// The same future, under the deadline whenever it is polled; an outer one that is sooner
    /// stays. The future itself is not ended: its time-outs are.
    ///
    /// A time-out counts where it is made. So `scope(async { client.call(request).await })`, where
    /// the call is made in the scope, and not `scope(client.call(request))`, where it is made
    /// before.
    pub fn scope<F: IntoFuture>(self, future: F) -> WithDeadline<F::IntoFuture> {
        WithDeadline { future: future.into_future(), deadline: self }
    }
}

fn set(current: Option<Deadline>) {
    let _torn_down = CURRENT.try_with(|cell| cell.set(current));
}

/// Puts the deadline back that was the current one, also after a panic.
struct RestoreDeadline(Option<Deadline>);

impl Drop for RestoreDeadline {
    fn drop(&mut self) {
        set(self.0);
    }
}

impl Timer {
    /// A moment, or that of the deadline which the caller is under, if it is sooner.
    pub(super) fn respecting_deadline(&self, at: WheelInstant) -> WheelInstant {
        Deadline::current()
            .map_or(at, |Deadline(instant)| at.min(self.wheel().wheel_instant(instant)))
    }
}

pin_project! {
    /// A future under a deadline; made by [`Deadline::scope`].
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
    /// The deadline.
    pub fn deadline(&self) -> Deadline {
        self.deadline
    }

    /// The future, under none.
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
