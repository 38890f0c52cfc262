//! [`GrpcTimeoutBody`]: a response body that ends at the deadline of its request, and its final
//! status.

#![forbid(unsafe_code)]

use crate::future::{Deadline, Sleep, Timer};
use ::http::{HeaderMap, HeaderValue};
use ::http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The deadline of a request, and the sleep that wakes its task then.
#[derive(Debug)]
pub(super) struct RequestLimit {
    deadline: Deadline,
    timer: Timer,
    sleep: Sleep,
}

/// The reason why a request was ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// The deadline has passed.
    Exceeded,
    /// The timer refuses to wait for it.
    NotKept,
}

impl RequestLimit {
    pub(super) fn new(timer: &Timer, deadline: Deadline) -> Self {
        Self { deadline, timer: timer.share(), sleep: timer.sleep_until(deadline.instant()) }
    }

    /// Polls a part of the request under its deadline, unless the deadline has passed. An inner
    /// timeout for the same instant is then not polled.
    pub(super) fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        part: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<Result<R, Ended>> {
        if self.deadline.left(self.timer.now()).is_zero() {
            return Poll::Ready(Err(Ended::Exceeded));
        }
        if let Poll::Ready(done) = self.deadline.run(|| part(context)) {
            return Poll::Ready(Ok(done));
        }
        let slept = ready!(Pin::new(&mut self.sleep).poll(context));
        Poll::Ready(Err(if slept.is_ok() { Ended::Exceeded } else { Ended::NotKept }))
    }
}

impl Ended {
    /// Returns the status as the head of a response or the trailers of a body contain it.
    pub(super) fn status(self) -> HeaderMap {
        let (code, message) = match self {
            Ended::Exceeded => ("4", "the deadline has passed"),
            Ended::NotKept => ("14", "no deadline can be kept"),
        };
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert("grpc-status", HeaderValue::from_static(code));
        headers.insert("grpc-message", HeaderValue::from_static(message));
        headers
    }
}

pin_project! {
    /// The body of a gRPC response, which ends at the deadline of its request with the status
    /// `DEADLINE_EXCEEDED` (4) in its trailers. Created by a [`GrpcTimeout`](super::GrpcTimeout)
    /// service.
    ///
    /// The service's body is polled under the [`Deadline`]. A message that was partly sent remains
    /// incomplete. If the timer refuses to arm, a body that is not ready at once ends with
    /// `UNAVAILABLE` (14).
    ///
    /// # Examples
    ///
    /// A stream that sends nothing, in virtual time:
    ///
    /// ```
    /// use http::{Request, Response};
    /// use http_body::{Body, Frame};
    /// use std::convert::Infallible;
    /// use std::future::{Ready, poll_fn, ready};
    /// use std::pin::{Pin, pin};
    /// use std::task::{Context, Poll};
    /// use std::time::Duration;
    /// use tourbillon::http::{GrpcTimeoutBody, GrpcTimeoutLayer};
    /// use tourbillon::testing::block_on;
    /// use tower_layer::Layer;
    /// use tower_service::Service;
    ///
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
    /// # struct Subscribe;
    /// #
    /// # impl Service<Request<()>> for Subscribe {
    /// #     type Response = Response<Silent>;
    /// #     type Error = Infallible;
    /// #     type Future = Ready<Result<Response<Silent>, Infallible>>;
    /// #
    /// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
    /// #         Poll::Ready(Ok(()))
    /// #     }
    /// #
    /// #     fn call(&mut self, _: Request<()>) -> Self::Future {
    /// #         ready(Ok(Response::new(Silent)))
    /// #     }
    /// # }
    ///
    /// let trailers = block_on(|timer| async move {
    ///     // A service that answers with a `Silent`.
    ///     let mut service = GrpcTimeoutLayer::new(timer).layer(Subscribe);
    ///     let request = Request::builder().header("grpc-timeout", "10S").body(()).unwrap();
    ///     let Ok(response) = service.call(request).await;
    ///     let mut body: Pin<&mut GrpcTimeoutBody<Silent>> = pin!(response.into_body());
    ///     let frame = poll_fn(|context| body.as_mut().poll_frame(context)).await;
    ///     frame.and_then(Result::ok).and_then(|frame| frame.into_trailers().ok())
    /// });
    /// assert_eq!(trailers.unwrap()["grpc-status"], "4");
    /// ```
    #[derive(Debug)]
    pub struct GrpcTimeoutBody<B> {
        // None if the response is a status alone, or the deadline has come.
        #[pin]
        body: Option<B>,
        // None if there is no deadline, or the body has ended.
        limit: Option<RequestLimit>,
    }
}

impl<B> GrpcTimeoutBody<B> {
    pub(super) fn new(body: Option<B>, limit: Option<RequestLimit>) -> Self {
        Self { body, limit }
    }

    /// Returns the service's body, or `None` if the deadline ended the response.
    pub fn get_ref(&self) -> Option<&B> {
        self.body.as_ref()
    }

    /// Returns the service's body without a deadline, or `None` if the deadline ended the response.
    pub fn into_inner(self) -> Option<B> {
        self.body
    }
}

impl<B: Body> Body for GrpcTimeoutBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(body) = this.body.as_mut().as_pin_mut() else {
            return Poll::Ready(None);
        };
        let Some(limit) = this.limit else {
            return body.poll_frame(context);
        };
        Poll::Ready(match ready!(limit.poll(context, |context| body.poll_frame(context))) {
            Ok(frame) => {
                if !matches!(&frame, Some(Ok(frame)) if frame.is_data()) {
                    *this.limit = None;
                }
                frame
            }
            Err(ended) => {
                this.body.set(None);
                *this.limit = None;
                Some(Ok(Frame::trailers(ended.status())))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    /// Returns the size hint of the service's body, with a lower bound of zero if the deadline may
    /// end it early.
    fn size_hint(&self) -> SizeHint {
        let Some(body) = &self.body else {
            return SizeHint::with_exact(0);
        };
        let mut hint = body.size_hint();
        if self.limit.is_some() && !body.is_end_stream() {
            let upper = hint.upper();
            hint = SizeHint::new();
            upper.into_iter().for_each(|upper| hint.set_upper(upper));
        }
        hint
    }
}
