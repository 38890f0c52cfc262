//! Timeouts of tower services on a wheel: [`TimeoutLayer`], and the [`TimeoutService`] that it
//! creates.
//!
//! They work like tower's own on another clock. The time counts from the call, and a request
//! without a response in time ends with an error. Each request has one timer, which is cancelled
//! with its response. The wait until a service is ready comes before the call and does not count,
//! unless an [`AwaitReadyLayer`] moves it into the response.

#![forbid(unsafe_code)]

pub use super::tower_ready::{AwaitReady, AwaitReadyFuture, AwaitReadyLayer};
use super::wraps::wraps_a_service;
use crate::future::{self, TimeoutError, Timer};
use pin_project_lite::pin_project;
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The error of a service or body with a timeout. It is the inner error or the error of the
/// timeout, which for a service is a [`TimeoutError`]. `error.is::<TimeoutError>()` distinguishes
/// them.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// Limits the time of each request of a service, from its call to its response.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, TimeoutError};
/// use tourbillon::tower::TimeoutLayer;
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// /// A service that does not answer.
/// struct Silent;
///
/// impl Service<&str> for Silent {
///     type Response = ();
///     type Error = Infallible;
///     type Future = std::future::Pending<Result<(), Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _request: &str) -> Self::Future {
///         std::future::pending()
///     }
/// }
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut service = TimeoutLayer::new(timer, Duration::from_millis(5)).layer(Silent);
/// let answer = pollster::block_on(service.call("anybody there?"));
/// assert!(answer.is_err_and(|error| error.is::<TimeoutError>()));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimeoutLayer {
    timer: Timer,
    timeout: Duration,
}

impl TimeoutLayer {
    /// Creates a layer whose services end requests after `timeout`, by `timer`.
    #[must_use]
    pub fn new(timer: Timer, timeout: Duration) -> Self {
        Self { timer, timeout }
    }
}

impl<S> Layer<S> for TimeoutLayer {
    type Service = TimeoutService<S>;

    fn layer(&self, inner: S) -> TimeoutService<S> {
        TimeoutService { inner, timer: self.timer.clone(), timeout: self.timeout }
    }
}

/// A service whose requests end with a [`TimeoutError`] if they have no response in time, created
/// by a [`TimeoutLayer`].
///
/// Each clone of the service has a clone of the timer, which is one allocation and has its own
/// counter of sleeps. Clones for different connections therefore share no counter.
///
/// # Errors
///
/// Returns a [`BoxError`] with the error of the service, with [`TimeoutError::Elapsed`], or with
/// [`TimeoutError::Deadline`] if a [`Deadline`](future::Deadline) came before the limit. If the
/// timer was shut down or is at its capacity, a response that is not ready at once fails with
/// [`TimeoutError::Refused`], so no request runs without its timeout.
///
/// # Examples
///
/// ```
/// # use std::convert::Infallible;
/// # use std::future::{Ready, ready};
/// # use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon::tower::TimeoutService;
/// use tower_service::Service;
///
/// # struct Length;
/// # impl Service<&str> for Length {
/// #     type Response = usize;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<usize, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
/// #         Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, request: &str) -> Self::Future {
/// #         ready(Ok(request.len()))
/// #     }
/// # }
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut service = TimeoutService::new(Length, timer, Duration::from_secs(5)); // over a service
/// assert_eq!(pollster::block_on(service.call("a request"))?, 9);
/// let _length = service.into_inner();
/// # Ok::<(), tourbillon::tower::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TimeoutService<S> {
    inner: S,
    timer: Timer,
    timeout: Duration,
}

impl<S> TimeoutService<S> {
    /// Creates a service that ends the requests of `inner` after `timeout`, by `timer`.
    #[must_use]
    pub fn new(inner: S, timer: Timer, timeout: Duration) -> Self {
        TimeoutLayer::new(timer, timeout).layer(inner)
    }
}

wraps_a_service!(TimeoutService);

impl<S, Request> Service<Request> for TimeoutService<S>
where
    S: Service<Request>,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let response = self.inner.call(request);
        ResponseFuture { response: self.timer.timeout(self.timeout, response) }
    }
}

pin_project! {
    /// The response of a [`TimeoutService`]. Dropping it cancels the timer.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use std::future::{Pending, pending};
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use std::time::Duration;
    /// use tourbillon::future::{Timer, TimeoutError};
    /// use tourbillon::tower::TimeoutService;
    /// use tourbillon::{Builder, ManualClock};
    /// use tower_service::Service;
    ///
    /// # struct Silent;
    /// # impl Service<&str> for Silent {
    /// #     type Response = ();
    /// #     type Error = Infallible;
    /// #     type Future = Pending<Result<(), Infallible>>;
    /// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    /// #         Poll::Ready(Ok(()))
    /// #     }
    /// #     fn call(&mut self, _: &str) -> Self::Future {
    /// #         pending()
    /// #     }
    /// # }
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let limit = Duration::from_secs(5);
    /// let mut service = TimeoutService::new(Silent, Timer::new(wheel), limit);
    /// let mut response = pin!(service.call("a request"));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(response.as_mut().poll(&mut context).is_pending());
    ///
    /// clock.advance(limit);
    /// let _ = sweeper.sweep(|timer| timer.value.wake());
    /// let Poll::Ready(Err(error)) = response.as_mut().poll(&mut context) else { unreachable!() };
    /// assert_eq!(error.downcast_ref(), Some(&TimeoutError::Elapsed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct ResponseFuture<F> {
        #[pin]
        response: future::Timeout<F>,
    }
}

impl<F, Response, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Response, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Response, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer: Result<_, TimeoutError> = ready!(self.project().response.poll(context));
        Poll::Ready(answer?.map_err(Into::into))
    }
}
