//! [`AwaitReadyLayer`]: services whose responses include the wait for readiness.

#![forbid(unsafe_code)]

use super::wraps::wraps_a_service;
use pin_project_lite::pin_project;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// Makes a service that is always ready and whose responses wait until the inner service is ready,
/// so that a timeout above it covers that wait.
///
/// The timeouts of tower and of this crate count from the call. A service with a concurrency limit,
/// or one that has lost its connection, is not called until it is ready, which may never happen.
/// Place this layer directly below the timeout:
///
/// ```text
/// ServiceBuilder::new()
///     .layer(TimeoutLayer::new(timer, limit)) // also those of `http`
///     .layer(AwaitReadyLayer::new())
///     .layer(ConcurrencyLimitLayer::new(100))
/// ```
///
/// Each call clones the inner service, as the servers of hyper and axum do for each request.
/// Readiness must therefore be shared by clones, as the permits of a concurrency limit are. The
/// layer removes back-pressure: any number of requests wait in it, each no longer than its timeout.
/// A load balancer that selects services by readiness should therefore not have this layer below
/// it.
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
/// use std::future::{Ready, ready};
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, TimeoutError};
/// use tourbillon::tower::{AwaitReadyLayer, TimeoutLayer};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// /// A service that never is ready.
/// #[derive(Clone)]
/// struct Exhausted;
///
/// impl Service<&str> for Exhausted {
///     type Response = ();
///     type Error = Infallible;
///     type Future = Ready<Result<(), Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Pending
///     }
///
///     fn call(&mut self, _request: &str) -> Self::Future {
///         ready(Ok(()))
///     }
/// }
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let limited = TimeoutLayer::new(timer, Duration::from_millis(5));
/// let mut service = limited.layer(AwaitReadyLayer::new().layer(Exhausted));
/// let answer = pollster::block_on(service.call("a request"));
/// assert!(answer.is_err_and(|error| error.is::<TimeoutError>()));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct AwaitReadyLayer(());

impl AwaitReadyLayer {
    /// Creates the layer.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

impl<S> Layer<S> for AwaitReadyLayer {
    type Service = AwaitReady<S>;

    fn layer(&self, inner: S) -> AwaitReady<S> {
        AwaitReady { inner }
    }
}

/// A service that is always ready and whose responses wait until the inner service is ready,
/// created by an [`AwaitReadyLayer`].
#[derive(Clone, Debug)]
pub struct AwaitReady<S> {
    inner: S,
}

wraps_a_service!(AwaitReady);

impl<S, Request> Service<Request> for AwaitReady<S>
where
    S: Service<Request> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = AwaitReadyFuture<S, Request>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let state = State::Waiting { service: self.inner.clone(), request: Some(request) };
        AwaitReadyFuture { state }
    }
}

pin_project! {
    /// The response of an [`AwaitReady`] service.
    #[must_use = "a future does nothing unless it is polled"]
    pub struct AwaitReadyFuture<S, Request>
    where
        S: Service<Request>,
    {
        #[pin]
        state: State<S, Request>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, Request>
    where
        S: Service<Request>,
    {
        // The request is there until the service is called.
        Waiting { service: S, request: Option<Request> },
        Called { #[pin] response: S::Future },
    }
}

impl<S, Request> Future for AwaitReadyFuture<S, Request>
where
    S: Service<Request>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let response = match state.as_mut().project() {
                StateProjected::Called { response } => return response.poll(context),
                StateProjected::Waiting { service, request } => {
                    ready!(service.poll_ready(context))?;
                    let request = request.take();
                    service.call(request.unwrap_or_else(|| unreachable!("called twice")))
                }
            };
            state.set(State::Called { response });
        }
    }
}

impl<S, Request> fmt::Debug for AwaitReadyFuture<S, Request>
where
    S: Service<Request>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitReadyFuture").finish_non_exhaustive()
    }
}
