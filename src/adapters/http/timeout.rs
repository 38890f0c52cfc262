//! [`ResponseTimeoutLayer`]: answers late requests with a status.

#![forbid(unsafe_code)]

use crate::adapters::wraps::wraps_a_service;
use crate::future::{self, TimeoutError, Timer};
use ::http::{Request, Response, StatusCode};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Answers requests that have no response in time with a status and an empty body.
///
/// The time counts from the call to the head of the response. The service's own error is unchanged,
/// so with axum there is no error to handle.
///
/// If the request's [`Deadline`](crate::future::Deadline) passes before this layer's limit, the
/// response is 504 whatever `status` is, because the delay is not the client's. The response has
/// the [`TimeoutError`] among its extensions.
///
/// Use [`REQUEST_TIMEOUT`](StatusCode::REQUEST_TIMEOUT) (408) if the client was too slow and may
/// try again, [`GATEWAY_TIMEOUT`](StatusCode::GATEWAY_TIMEOUT) (504) if a server behind this one
/// was too slow, and [`SERVICE_UNAVAILABLE`](StatusCode::SERVICE_UNAVAILABLE) (503) if this server
/// was. If the timer refuses, the response is 503.
///
/// # Examples
///
/// ```
/// use http::{Request, Response, StatusCode};
/// use std::convert::Infallible;
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon::http::ResponseTimeoutLayer;
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// /// A service that does not answer.
/// struct Silent;
///
/// impl Service<Request<()>> for Silent {
///     type Response = Response<String>;
///     type Error = Infallible;
///     type Future = std::future::Pending<Result<Response<String>, Infallible>>;
///
///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
///         Poll::Ready(Ok(()))
///     }
///
///     fn call(&mut self, _: Request<()>) -> Self::Future {
///         std::future::pending()
///     }
/// }
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let limit = Duration::from_millis(5);
/// let layer = ResponseTimeoutLayer::with_status_code(timer, StatusCode::GATEWAY_TIMEOUT, limit);
/// let Ok(response) = pollster::block_on(layer.layer(Silent).call(Request::new(())));
/// assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResponseTimeoutLayer {
    timer: Timer,
    status: StatusCode,
    timeout: Duration,
}

impl ResponseTimeoutLayer {
    /// Creates a layer whose services answer with `status` if there is no response after `timeout`,
    /// by `timer`.
    #[must_use]
    pub fn with_status_code(timer: Timer, status: StatusCode, timeout: Duration) -> Self {
        Self { timer, status, timeout }
    }
}

impl<S> Layer<S> for ResponseTimeoutLayer {
    type Service = ResponseTimeout<S>;

    fn layer(&self, inner: S) -> ResponseTimeout<S> {
        ResponseTimeout { inner, layer: self.clone() }
    }
}

/// A service that answers requests with a status if they have no response in time, created by a
/// [`ResponseTimeoutLayer`].
///
/// Each clone of the service has a clone of the timer, as in
/// [`tower`](crate::adapters::tower::TimeoutService).
///
/// # Examples
///
/// ```
/// # use http::{Request, Response, StatusCode};
/// # use std::convert::Infallible;
/// # use std::future::{Ready, ready};
/// # use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon::http::{ResponseTimeout, ResponseTimeoutLayer};
/// use tower_layer::Layer;
/// use tower_service::Service;
///
/// # struct Hello;
/// # impl Service<Request<()>> for Hello {
/// #     type Response = Response<&'static str>;
/// #     type Error = Infallible;
/// #     type Future = Ready<Result<Response<&'static str>, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
/// #         Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<()>) -> Self::Future {
/// #         ready(Ok(Response::new("hello")))
/// #     }
/// # }
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let (status, limit) = (StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
/// let layer = ResponseTimeoutLayer::with_status_code(timer, status, limit);
/// let mut service: ResponseTimeout<Hello> = layer.layer(Hello); // a service that greets at once
/// let Ok(response) = pollster::block_on(service.call(Request::new(())));
/// assert_eq!((response.status(), response.into_body()), (StatusCode::OK, "hello"));
/// let _hello = service.into_inner();
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResponseTimeout<S> {
    inner: S,
    layer: ResponseTimeoutLayer,
}

wraps_a_service!(ResponseTimeout);

impl<S, Body, Answer> Service<Request<Body>> for ResponseTimeout<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
    Answer: Default,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseTimeoutFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let response = self.inner.call(request);
        let ResponseTimeoutLayer { timer, status, timeout } = &self.layer;
        ResponseTimeoutFuture { response: timer.timeout(*timeout, response), status: *status }
    }
}

pin_project! {
    /// The response of a [`ResponseTimeout`]. Dropping it cancels the timer.
    ///
    /// # Examples
    ///
    /// A client disconnects, which cancels its timeout:
    ///
    /// ```
    /// # use http::{Request, Response, StatusCode};
    /// # use std::convert::Infallible;
    /// # use std::future::{Pending, pending};
    /// use std::task::{Context, Poll, Waker};
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::http::ResponseTimeoutLayer;
    /// use tower_layer::Layer;
    /// use tower_service::Service;
    ///
    /// # struct Silent;
    /// # impl Service<Request<()>> for Silent {
    /// #     type Response = Response<String>;
    /// #     type Error = Infallible;
    /// #     type Future = Pending<Result<Response<String>, Infallible>>;
    /// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    /// #         Poll::Ready(Ok(()))
    /// #     }
    /// #     fn call(&mut self, _: Request<()>) -> Self::Future {
    /// #         pending()
    /// #     }
    /// # }
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let (status, limit) = (StatusCode::GATEWAY_TIMEOUT, Duration::from_secs(5));
    /// let layer = ResponseTimeoutLayer::with_status_code(timer.clone(), status, limit);
    /// let mut service = layer.layer(Silent); // a service that has no response yet
    /// let mut response = Box::pin(service.call(Request::new(())));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(response.as_mut().poll(&mut context).is_pending());
    /// assert_eq!(timer.wheel().len(), 1);
    /// drop(response);
    /// assert_eq!(timer.wheel().len(), 0);
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct ResponseTimeoutFuture<F> {
        #[pin]
        response: future::Timeout<F>,
        status: StatusCode,
    }
}

impl<F, Answer, E> Future for ResponseTimeoutFuture<F>
where
    F: Future<Output = Result<Response<Answer>, E>>,
    Answer: Default,
{
    type Output = Result<Response<Answer>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let error = match ready!(this.response.poll(context)) {
            Ok(answer) => return Poll::Ready(answer),
            Err(error) => error,
        };
        let mut response = Response::new(Answer::default());
        *response.status_mut() = match error {
            TimeoutError::Elapsed => *this.status,
            TimeoutError::Deadline => StatusCode::GATEWAY_TIMEOUT,
            TimeoutError::Refused(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        response.extensions_mut().insert(error);
        Poll::Ready(Ok(response))
    }
}
