//! [`Timeout`]: a future with a time limit.

#![forbid(unsafe_code)]

use super::deadline::Deadline;
use super::grace::Grace;
use super::sleep::Sleep;
use super::timer::Timer;
use crate::{Refusal, WheelInstant};
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pin_project! {
    /// A future with a time limit; created by [`Timer::timeout`](super::Timer::timeout).
    ///
    /// It returns the output of the inner future, or an error if there is none in time. The inner
    /// future is polled first, so an output that is ready at the deadline counts.
    ///
    /// On a timer with a driver, such as one created by [`Timer::spawn`](super::Timer::spawn), a
    /// timeout that has waited reports its expiry a millisecond or two after it has noticed the
    /// expiry, and polls the future once more before that. On any timer, a timeout does so if it
    /// notices its expiry late, because the process was stopped or a task blocked the thread. A
    /// future that reads a socket therefore returns the bytes that the system received before the
    /// deadline. A `select!` of the future and a [`Sleep`] gives no such guarantee.
    ///
    /// # Examples
    ///
    /// A timeout that is restarted whenever a part of the answer arrives, in virtual time:
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use std::time::Duration;
    /// use tourbillon::future::{Timer, TimeoutError};
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let minute = Duration::from_secs(60);
    /// let mut answer = pin!(Timer::new(wheel).timeout(minute, std::future::pending::<()>()));
    /// let mut context = Context::from_waker(Waker::noop());
    ///
    /// clock.advance(minute / 2);
    /// answer.as_mut().sleep().reset_after(minute); // a part of the answer has come
    /// clock.advance(minute / 2);
    /// assert!(answer.as_mut().poll(&mut context).is_pending());
    /// clock.advance(minute / 2);
    /// let _ = sweeper.sweep(|timer| timer.value.wake());
    /// assert_eq!(answer.poll(&mut context), Poll::Ready(Err(TimeoutError::Elapsed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
        grace: Grace,
        // The deadline under which the timeout was created.
        deadline: Option<Deadline>,
    }
}

impl Timer {
    /// Limits `future` to `delay` from now, and to the [`Deadline`] of the caller if that is
    /// sooner.
    ///
    /// The [error](TimeoutError) states which of them has passed. With a delay of zero, `future` is
    /// polled once.
    pub fn timeout<F: IntoFuture>(&self, delay: Duration, future: F) -> Timeout<F::IntoFuture> {
        self.timeout_by(self.after(delay), future.into_future())
    }

    /// Limits `future` to `deadline`, and to the [`Deadline`] of the caller if that is sooner.
    ///
    /// # Examples
    ///
    /// Two steps that share one deadline:
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// pollster::block_on(async {
    ///     let connected = timer.timeout_at(deadline, async { "connected" }).await?;
    ///     assert_eq!(connected, "connected");
    ///     assert!(timer.timeout_at(deadline, std::future::pending::<()>()).await.is_err());
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout_at<F: IntoFuture>(
        &self,
        deadline: Instant,
        future: F,
    ) -> Timeout<F::IntoFuture> {
        self.timeout_by(self.wheel().wheel_instant(deadline), future.into_future())
    }

    fn timeout_by<F>(&self, at: WheelInstant, future: F) -> Timeout<F> {
        let sleep = Sleep::new(self.share(), self.respecting_deadline(at));
        Timeout { future, sleep, grace: Grace::default(), deadline: Deadline::current() }
    }
}

impl<F> Timeout<F> {
    /// Returns a reference to the inner future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns a mutable reference to the inner future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Returns the inner future, without the limit.
    pub fn into_inner(self) -> F {
        self.future
    }

    /// Returns the sleep that ends the future, to read its deadline or to reset it.
    pub fn sleep(self: Pin<&mut Self>) -> &mut Sleep {
        self.project().sleep
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, TimeoutError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(answer) = this.future.poll(context) {
            return Poll::Ready(Ok(answer));
        }
        let slept = ready!(this.grace.poll(this.sleep, context));
        Poll::Ready(Err(match (slept, this.deadline) {
            (Err(refusal), _) => TimeoutError::Refused(refusal),
            (Ok(()), Some(deadline)) if this.sleep.deadline() >= deadline.instant() => {
                TimeoutError::Deadline
            }
            (Ok(()), _) => TimeoutError::Elapsed,
        }))
    }
}

/// The error of a [`Timeout`].
///
/// # Examples
///
/// Conversion into an I/O error, and back:
///
/// ```
/// use std::io;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, TimeoutError};
///
/// async fn read(timer: &Timer) -> io::Result<usize> {
///     let silent = std::future::pending::<io::Result<usize>>();
///     timer.timeout(Duration::ZERO, silent).await?
/// }
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let error = pollster::block_on(read(&timer)).unwrap_err();
/// assert_eq!(error.kind(), io::ErrorKind::TimedOut);
/// assert_eq!(error.downcast::<TimeoutError>().ok(), Some(TimeoutError::Elapsed));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimeoutError {
    /// The time limit has passed.
    Elapsed,
    /// The [`Deadline`] that applied when the timeout was created has passed. The caller no longer
    /// waits for the result, whether or not the future itself was slow.
    Deadline,
    /// The timeout could not be armed because the timer was shut down or is full.
    Refused(Refusal),
}

impl fmt::Display for TimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TimeoutError::Elapsed => f.write_str("the timeout has elapsed"),
            TimeoutError::Deadline => f.write_str("the deadline of the request has passed"),
            TimeoutError::Refused(refusal) => write!(f, "could not arm the timeout: {refusal}"),
        }
    }
}

impl Error for TimeoutError {}

/// Converts the error to one of kind [`TimedOut`](io::ErrorKind::TimedOut) if the limit or the
/// deadline has passed, and [`Other`](io::ErrorKind::Other) otherwise.
impl From<TimeoutError> for io::Error {
    fn from(error: TimeoutError) -> Self {
        let kind = match error {
            TimeoutError::Elapsed | TimeoutError::Deadline => io::ErrorKind::TimedOut,
            TimeoutError::Refused(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
