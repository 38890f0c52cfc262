//! [`TimeoutBody`]: a body with a limit for each frame and for the whole.

#![forbid(unsafe_code)]

use crate::Refusal;
use crate::adapters::tower::BoxError;
use crate::future::grace::Grace;
use crate::future::{Sleep, Timer};
use ::http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

pin_project! {
    /// A body that fails with a [`BodyTimeoutError`] if its reader has waited too long for a frame
    /// or for the [whole body](Self::with_total_timeout).
    ///
    /// The time for a frame counts from the first poll that finds no frame, so a slow reader does
    /// not cause a timeout. Like a [`Timeout`](crate::future::Timeout), a body on a timer with a
    /// driver, or one that notices the end of the time late, polls for a frame once more about a
    /// millisecond later, before it reports the timeout. The body arms a timer at the first poll
    /// that finds no frame, resets it for each wait, and cancels it at the end of the body.
    ///
    /// # Examples
    ///
    /// ```
    /// use http_body::{Body, Frame};
    /// use std::convert::Infallible;
    /// use std::future::poll_fn;
    /// use std::pin::{Pin, pin};
    /// use std::task::{Context, Poll};
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::http::{BodyTimeoutError, TimeoutBody};
    ///
    /// /// The body of a peer that has gone away.
    /// struct Silent;
    ///
    /// impl Body for Silent {
    ///     type Data = &'static [u8];
    ///     type Error = Infallible;
    ///
    ///     fn poll_frame(
    ///         self: Pin<&mut Self>,
    ///         _: &mut Context<'_>,
    ///     ) -> Poll<Option<Result<Frame<&'static [u8]>, Infallible>>> {
    ///         Poll::Pending
    ///     }
    /// }
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let mut body = pin!(TimeoutBody::new(Silent, &timer, Duration::from_millis(5)));
    /// let frame = pollster::block_on(poll_fn(|context| body.as_mut().poll_frame(context)));
    /// let error = frame.and_then(Result::err).and_then(|error| error.downcast().ok());
    /// assert_eq!(error.as_deref(), Some(&BodyTimeoutError::Elapsed));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[derive(Debug)]
    pub struct TimeoutBody<B> {
        #[pin]
        body: B,
        timeout: Duration,
        // None at the end of the body.
        sleep: Option<Sleep>,
        grace: Grace,
        // Whether the sleep counts: set by a poll that finds no frame; cleared by the next frame.
        waits: bool,
        // None without a limit for the whole, and at the end of the body.
        total: Option<TotalLimit>,
    }
}

/// The limit for a whole body.
#[derive(Debug)]
struct TotalLimit {
    sleep: Sleep,
    grace: Grace,
}

impl TotalLimit {
    /// Ready when the limit has passed and the runtime has polled its sockets since, or when the
    /// timer refuses to wait.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let polled = self.sleep.poll_by_clock(context);
        self.grace.delay(polled, &self.sleep, context)
    }

    /// Returns `Ready` if it is too late to return a frame that is ready. Arms no timer before the
    /// limit has passed.
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let was_delaying = self.grace.is_delaying();
        if self.sleep.is_elapsed() && self.poll(context).is_ready() && !was_delaying {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

impl<B> TimeoutBody<B> {
    /// Creates a body that fails if a frame of `body` is awaited for longer than `timeout`, by
    /// `timer`.
    #[must_use]
    pub fn new(body: B, timer: &Timer, timeout: Duration) -> Self {
        let (sleep, grace) = (Some(timer.sleep(timeout)), Grace::default());
        Self { body, timeout, sleep, grace, waits: false, total: None }
    }

    /// Limits how long the whole body may take from now on, with the same timer. The limit also
    /// ends a body that always has frames, but too few of them or without end.
    ///
    /// The time counts even while the body is not polled. After the limit, a frame that is ready is
    /// no longer returned. That begins about a millisecond after the limit was noticed if it was
    /// noticed late, or if the timer has a driver and the body was awaited then. A body that the
    /// system received before the limit is therefore returned whole, even if another task blocked
    /// the runtime's thread. The limit costs a second timer while the body is awaited, and a clock
    /// reading for each frame.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use http_body::Body;
    /// use std::future::poll_fn;
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::http::{BodyTimeoutError, TimeoutBody};
    /// use tourbillon::testing::block_on;
    ///
    /// let frame = block_on(|timer| async move {
    ///     let body = TimeoutBody::new(String::from("an upload"), &timer, Duration::from_secs(10));
    ///     let mut body = pin!(body.with_total_timeout(Duration::from_secs(60)));
    ///     timer.sleep(Duration::from_secs(60)).await.unwrap();
    ///     poll_fn(|context| body.as_mut().poll_frame(context)).await
    /// });
    /// let error = frame.and_then(Result::err).and_then(|error| error.downcast().ok());
    /// assert_eq!(error.as_deref(), Some(&BodyTimeoutError::Total));
    /// ```
    #[must_use]
    pub fn with_total_timeout(mut self, limit: Duration) -> Self {
        let total = |sleep: &Sleep| TotalLimit {
            sleep: sleep.timer().sleep(limit),
            grace: Grace::default(),
        };
        self.total = self.sleep.as_ref().map(total);
        self
    }

    /// Returns a reference to the inner body.
    pub fn get_ref(&self) -> &B {
        &self.body
    }

    /// Returns a mutable reference to the inner body.
    pub fn get_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// Returns the inner body, without its timeout.
    pub fn into_inner(self) -> B {
        self.body
    }
}

impl<B: Body> Body for TimeoutBody<B>
where
    B::Error: Into<BoxError>,
{
    type Data = B::Data;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, BoxError>>> {
        let this = self.project();
        let Some(sleep) = this.sleep else {
            return Poll::Ready(None);
        };
        let error =
            if this.total.as_mut().is_some_and(|total| total.poll_overdue(context).is_ready()) {
                BodyTimeoutError::Total
            } else if let Poll::Ready(frame) = this.body.poll_frame(context) {
                *this.waits = false;
                if !matches!(frame, Some(Ok(_))) {
                    (*this.sleep, *this.total) = (None, None);
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
            } else {
                if !*this.waits {
                    *this.waits = true;
                    sleep.reset_after(*this.timeout);
                }
                let (slept, passed) = match (this.grace.poll(sleep, context), this.total.as_mut()) {
                    (Poll::Ready(slept), _) => (slept, BodyTimeoutError::Elapsed),
                    (Poll::Pending, Some(total)) => {
                        (ready!(total.poll(context)), BodyTimeoutError::Total)
                    }
                    (Poll::Pending, None) => return Poll::Pending,
                };
                slept.map_or_else(BodyTimeoutError::Refused, |()| passed)
            };
        (*this.sleep, *this.total) = (None, None);
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.sleep.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The reason why a body is no longer awaited.
///
/// # Examples
///
/// The status for a client whose body could not be read:
///
/// ```
/// use http::StatusCode;
/// use tourbillon::http::{BodyTimeoutError, BoxError};
///
/// fn status(error: &BoxError) -> StatusCode {
///     match error.downcast_ref() {
///         Some(BodyTimeoutError::Elapsed | BodyTimeoutError::Total) => {
///             StatusCode::REQUEST_TIMEOUT
///         }
///         Some(_) => StatusCode::SERVICE_UNAVAILABLE,
///         None => StatusCode::BAD_REQUEST, // the error of the body itself
///     }
/// }
/// assert_eq!(status(&BodyTimeoutError::Elapsed.into()), StatusCode::REQUEST_TIMEOUT);
/// assert_eq!(status(&"broken".into()), StatusCode::BAD_REQUEST);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyTimeoutError {
    /// No frame arrived in time.
    Elapsed,
    /// The whole body took longer than [its limit](TimeoutBody::with_total_timeout).
    Total,
    /// The timer refused to wait because it was shut down or is full.
    Refused(Refusal),
}

impl fmt::Display for BodyTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyTimeoutError::Elapsed => {
                f.write_str("no frame of the body within the time allowed")
            }
            BodyTimeoutError::Total => f.write_str("no whole body within the time allowed"),
            BodyTimeoutError::Refused(_) => f.write_str("could not arm the timeout of the body"),
        }
    }
}

impl Error for BodyTimeoutError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BodyTimeoutError::Elapsed | BodyTimeoutError::Total => None,
            BodyTimeoutError::Refused(refusal) => Some(refusal),
        }
    }
}
