//! [`GrpcTimeoutLayer`]: ends gRPC requests at their clients' deadlines.

#![forbid(unsafe_code)]

use super::grpc_body::{Ended, GrpcTimeoutBody, RequestLimit};
use super::grpc_header::asked;
use crate::adapters::wraps::wraps_a_service;
use crate::future::{Deadline, Timer};
use ::http::header::CONTENT_TYPE;
use ::http::{HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Ends gRPC requests at the deadline that the client sets with the header `grpc-timeout`. The
/// status is `DEADLINE_EXCEEDED` (4), as gRPC specifies. (tonic's own `Server::timeout` ends them
/// with `CANCELLED`.)
///
/// The time counts from the call to the end of the response. A streaming response therefore ends
/// with that status in its [trailers](GrpcTimeoutBody). The request has the [`Deadline`] among its
/// extensions, and the service and its body are called and polled within its scope. Each
/// [`Timer::timeout`] that is made for the request therefore respects the deadline, and a client
/// with a [`GrpcDeadlineLayer`](super::GrpcDeadlineLayer) passes it on.
///
/// After the deadline the status is always `DEADLINE_EXCEEDED`, since the client no longer waits.
/// An inner timeout or [`ResponseTimeoutLayer`](super::ResponseTimeoutLayer) that ends at the same
/// deadline does not determine the response. Nor does an answer that becomes ready later: unlike a
/// [`Timeout`](crate::future::Timeout), the layer does not poll the service once more, even if it
/// notices the deadline late.
///
/// A request whose header is missing or malformed has no deadline, except for the
/// [limit](Self::at_most) of the server. If the timer refuses, requests that are not answered at
/// once end with `UNAVAILABLE` (14).
///
/// # Examples
///
/// ```
/// use http::{Request, Response};
/// use std::convert::Infallible;
/// use std::task::{Context, Poll};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon::http::GrpcTimeoutLayer;
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
/// let layer = GrpcTimeoutLayer::new(timer).at_most(Duration::from_secs(30));
/// let request = Request::builder().header("grpc-timeout", "5m").body(())?; // milliseconds
/// let Ok(response) = pollster::block_on(layer.layer(Silent).call(request));
/// assert_eq!(response.headers()["grpc-status"], "4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct GrpcTimeoutLayer {
    timer: Timer,
    at_most: Option<Duration>,
}

impl GrpcTimeoutLayer {
    /// Creates a layer whose deadlines are timed by `timer`.
    #[must_use]
    pub fn new(timer: Timer) -> Self {
        Self { timer, at_most: None }
    }

    /// Limits the time of every request, whatever deadline its client sets. Unlimited by default.
    #[must_use]
    pub fn at_most(mut self, limit: Duration) -> Self {
        self.at_most = Some(limit);
        self
    }

    /// Returns the deadline of a request that arrives now.
    fn deadline<B>(&self, request: &Request<B>) -> Option<Deadline> {
        let limit = asked(request).into_iter().chain(self.at_most).min()?;
        self.timer.now().checked_add(limit).map(Deadline::at)
    }
}

impl<S> Layer<S> for GrpcTimeoutLayer {
    type Service = GrpcTimeout<S>;

    fn layer(&self, inner: S) -> GrpcTimeout<S> {
        GrpcTimeout { inner, layer: self.clone() }
    }
}

/// A service whose requests end at their clients' deadlines, created by a [`GrpcTimeoutLayer`].
#[derive(Clone, Debug)]
pub struct GrpcTimeout<S> {
    inner: S,
    layer: GrpcTimeoutLayer,
}

wraps_a_service!(GrpcTimeout);

impl<S, Body, Answer> Service<Request<Body>> for GrpcTimeout<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
{
    type Response = Response<GrpcTimeoutBody<Answer>>;
    type Error = S::Error;
    type Future = GrpcResponseFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Some(deadline) = self.layer.deadline(&request) else {
            return GrpcResponseFuture { response: self.inner.call(request), limit: None };
        };
        request.extensions_mut().insert(deadline);
        let limit = Some(RequestLimit::new(&self.layer.timer, deadline));
        GrpcResponseFuture { response: deadline.run(|| self.inner.call(request)), limit }
    }
}

pin_project! {
    /// The response of a [`GrpcTimeout`] service. Dropping it cancels the timer.
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct GrpcResponseFuture<F> {
        #[pin]
        response: F,
        // None without a deadline; goes on to the body.
        limit: Option<RequestLimit>,
    }
}

impl<F, Answer, E> Future for GrpcResponseFuture<F>
where
    F: Future<Output = Result<Response<Answer>, E>>,
{
    type Output = Result<Response<GrpcTimeoutBody<Answer>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = match this.limit {
            None => Ok(ready!(this.response.poll(context))),
            Some(limit) => ready!(limit.poll(context, |context| this.response.poll(context))),
        };
        Poll::Ready(match answer {
            Ok(answer) => answer.map(|response| {
                response.map(|body| GrpcTimeoutBody::new(Some(body), this.limit.take()))
            }),
            Err(ended) => Ok(status(ended)),
        })
    }
}

/// Creates a response that consists of a status.
fn status<Answer>(ended: Ended) -> Response<GrpcTimeoutBody<Answer>> {
    let mut response = Response::new(GrpcTimeoutBody::new(None, None));
    let mut headers = ended.status();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    *response.headers_mut() = headers;
    response
}
