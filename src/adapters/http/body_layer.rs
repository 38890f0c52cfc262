//! [`RequestBodyTimeoutLayer`] and [`ResponseBodyTimeoutLayer`], which limit stalled bodies.

#![forbid(unsafe_code)]

use super::body::TimeoutBody;
use crate::adapters::wraps::wraps_a_service;
use crate::future::Timer;
use ::http::{Request, Response};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// The limits of a layer, a service or a future response. A clone counts its sleeps separately. The
/// bodies of one service [share](Timer::share) a count.
#[derive(Clone, Debug)]
struct BodyLimits {
    timer: Timer,
    timeout: Duration,
    total: Option<Duration>,
}

impl BodyLimits {
    fn share(&self) -> Self {
        Self { timer: self.timer.share(), timeout: self.timeout, total: self.total }
    }

    fn on<B>(&self, body: B) -> TimeoutBody<B> {
        let body = TimeoutBody::new(body, &self.timer, self.timeout);
        match self.total {
            Some(limit) => body.with_total_timeout(limit),
            None => body,
        }
    }
}

/// Defines a layer and the service that it creates.
macro_rules! layer {
    ($(#[$about_layer:meta])* $layer:ident makes $(#[$about_service:meta])* $service:ident) => {
        $(#[$about_layer])*
        #[derive(Clone, Debug)]
        pub struct $layer(BodyLimits);

        impl $layer {
            /// Creates a layer whose bodies fail if a frame is awaited for longer than `timeout`,
            /// by `timer`.
            #[must_use]
            pub fn new(timer: Timer, timeout: Duration) -> Self {
                Self(BodyLimits { timer, timeout, total: None })
            }

            /// Limits how long each whole body may take, as [`TimeoutBody::with_total_timeout`]
            /// does. For a request, the time counts from the call, and for a response from its
            /// head. Unlimited by default.
            ///
            /// To limit only the whole body, use [`Duration::MAX`] as the limit of a frame.
            #[must_use]
            pub fn with_total_timeout(mut self, limit: Duration) -> Self {
                self.0.total = Some(limit);
                self
            }
        }

        impl<S> Layer<S> for $layer {
            type Service = $service<S>;

            fn layer(&self, inner: S) -> $service<S> {
                $service { inner, limits: self.0.clone() }
            }
        }

        $(#[$about_service])*
        #[derive(Clone, Debug)]
        pub struct $service<S> {
            inner: S,
            limits: BodyLimits,
        }

        wraps_a_service!($service);
    };
}

layer! {
    /// Wraps the bodies of requests in [`TimeoutBody`]. A client that stops sending in the middle
    /// of a body does not block the service. If the [whole body](Self::with_total_timeout) is
    /// limited as well, neither does a client that sends single bytes from time to time.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use std::future::{Ready, ready};
    /// use std::task::{Context, Poll};
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::http::{RequestBodyTimeoutLayer, TimeoutBody};
    /// use tower_layer::Layer;
    /// use tower_service::Service;
    ///
    /// struct Upload;
    ///
    /// impl<B> Service<Request<TimeoutBody<B>>> for Upload {
    ///     type Response = Response<B>;
    ///     type Error = Infallible;
    ///     type Future = Ready<Result<Response<B>, Infallible>>;
    ///
    ///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    ///         Poll::Ready(Ok(()))
    ///     }
    ///
    ///     fn call(&mut self, request: Request<TimeoutBody<B>>) -> Self::Future {
    ///         ready(Ok(Response::new(request.into_body().into_inner())))
    ///     }
    /// }
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let layer = RequestBodyTimeoutLayer::new(timer, Duration::from_secs(10))
    ///     .with_total_timeout(Duration::from_secs(120));
    /// let Ok(response) = pollster::block_on(layer.layer(Upload).call(Request::new("a file")));
    /// assert_eq!(response.into_body(), "a file");
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    RequestBodyTimeoutLayer makes
    /// A service whose requests have [`TimeoutBody`]s, created by a [`RequestBodyTimeoutLayer`].
    RequestBodyTimeout
}

layer! {
    /// Wraps the bodies of responses in [`TimeoutBody`]. A source that stops in the middle of a
    /// body does not block the connection.
    ///
    /// The limit applies to the source of the body and not to the client that reads it. A limit for
    /// the [whole body](Self::with_total_timeout) includes the client's time.
    ///
    /// # Examples
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use std::future::{Ready, ready};
    /// use std::task::{Context, Poll};
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::http::ResponseBodyTimeoutLayer;
    /// use tower_layer::Layer;
    /// use tower_service::Service;
    ///
    /// struct Download;
    ///
    /// impl Service<Request<()>> for Download {
    ///     type Response = Response<&'static str>;
    ///     type Error = Infallible;
    ///     type Future = Ready<Result<Response<&'static str>, Infallible>>;
    ///
    ///     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    ///         Poll::Ready(Ok(()))
    ///     }
    ///
    ///     fn call(&mut self, _: Request<()>) -> Self::Future {
    ///         ready(Ok(Response::new("a file")))
    ///     }
    /// }
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let layer = ResponseBodyTimeoutLayer::new(timer, Duration::from_secs(10));
    /// let Ok(response) = pollster::block_on(layer.layer(Download).call(Request::new(())));
    /// assert_eq!(response.into_body().into_inner(), "a file");
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    ResponseBodyTimeoutLayer makes
    /// A service whose responses have [`TimeoutBody`]s, created by a [`ResponseBodyTimeoutLayer`].
    ResponseBodyTimeout
}

impl<S, B> Service<Request<B>> for RequestBodyTimeout<S>
where
    S: Service<Request<TimeoutBody<B>>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> S::Future {
        self.inner.call(request.map(|body| self.limits.on(body)))
    }
}

impl<S, Body, Answer> Service<Request<Body>> for ResponseBodyTimeout<S>
where
    S: Service<Request<Body>, Response = Response<Answer>>,
{
    type Response = Response<TimeoutBody<Answer>>;
    type Error = S::Error;
    type Future = ResponseBodyTimeoutFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let response = self.inner.call(request);
        ResponseBodyTimeoutFuture { response, limits: self.limits.share() }
    }
}

pin_project! {
    /// The response of a [`ResponseBodyTimeout`] service.
    ///
    /// # Examples
    ///
    /// The head of a response is unchanged, and its body has a timeout:
    ///
    /// ```
    /// # use http::{Request, Response};
    /// # use std::convert::Infallible;
    /// # use std::task::{Context, Poll};
    /// use std::future::{Ready, ready};
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::http::{ResponseBodyTimeoutFuture, ResponseBodyTimeoutLayer};
    /// use tower_layer::Layer;
    /// use tower_service::Service;
    ///
    /// type Answer = Ready<Result<Response<&'static str>, Infallible>>;
    /// # struct Download;
    /// # impl Service<Request<()>> for Download {
    /// #     type Response = Response<&'static str>;
    /// #     type Error = Infallible;
    /// #     type Future = Answer;
    /// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    /// #         Poll::Ready(Ok(()))
    /// #     }
    /// #     fn call(&mut self, _: Request<()>) -> Answer {
    /// #         ready(Ok(Response::new("a file")))
    /// #     }
    /// # }
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let layer = ResponseBodyTimeoutLayer::new(timer, Duration::from_secs(10));
    /// let mut service = layer.layer(Download); // a service whose future is an `Answer`
    /// let response: ResponseBodyTimeoutFuture<Answer> = service.call(Request::new(()));
    /// let Ok(response) = pollster::block_on(response);
    /// assert_eq!(response.status(), 200);
    /// assert_eq!(response.into_body().get_ref(), &"a file");
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is polled"]
    pub struct ResponseBodyTimeoutFuture<F> {
        #[pin]
        response: F,
        limits: BodyLimits,
    }
}

impl<F, Answer, E> Future for ResponseBodyTimeoutFuture<F>
where
    F: Future<Output = Result<Response<Answer>, E>>,
{
    type Output = Result<Response<TimeoutBody<Answer>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(context))?;
        Poll::Ready(Ok(response.map(|body| this.limits.on(body))))
    }
}
