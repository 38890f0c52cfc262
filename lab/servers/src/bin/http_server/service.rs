//! The answers of the server.

use crate::activity::{Activity, UnderWay};
use crate::shared::Shared;
use crate::stall::{Moving, Patience};
use crate::timers::Timers;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::{Method, Request, Response, StatusCode};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The maximum length of a body that is echoed.
const GREATEST: usize = 1 << 20;

/// Answers the requests of one connection.
pub(crate) struct Service<T: Timers> {
    shared: Arc<Shared<T>>,
    timers: Arc<T>,
    activity: Arc<Activity<T>>,
}

/// The body of an answer. Its request is in progress as long as it exists.
pub(crate) struct Answer<T: Timers> {
    body: Full<Bytes>,
    _under_way: UnderWay<T>,
}

type Handled = Result<Bytes, StatusCode>;

impl<T: Timers> Service<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>, timers: Arc<T>, activity: Arc<Activity<T>>) -> Self {
        Self { shared, timers, activity }
    }
}

impl<T: Timers> hyper::service::Service<Request<Incoming>> for Service<T> {
    type Response = Response<Answer<T>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = self.activity.begin(request.version());
        let (shared, timers) = (Arc::clone(&self.shared), Arc::clone(&self.timers));
        Box::pin(async move {
            shared.tally.request();
            let limit = shared.limits.request;
            let handled = tokio::select! {
                biased;
                handled = caught(handle(request, &shared, &timers)) => handled,
                _ = timers.sleep(limit) => {
                    shared.tally.fire();
                    Err(StatusCode::GATEWAY_TIMEOUT)
                }
            };
            Ok(answer(handled, under_way))
        })
    }
}

fn answer<T: Timers>(handled: Handled, under_way: UnderWay<T>) -> Response<Answer<T>> {
    let (status, body) = match handled {
        Ok(body) => (StatusCode::OK, body),
        Err(status) => (status, status.as_str().to_owned().into()),
    };
    let mut response = Response::new(Answer { body: Full::new(body), _under_way: under_way });
    *response.status_mut() = status;
    response
}

/// Converts a panic of the handler into an error, so that it harms no other request.
async fn caught(handler: impl Future<Output = Handled>) -> Handled {
    let mut handler = pin!(handler);
    std::future::poll_fn(|context| {
        let poll = catch_unwind(AssertUnwindSafe(|| handler.as_mut().poll(context)));
        poll.unwrap_or(Poll::Ready(Err(StatusCode::INTERNAL_SERVER_ERROR)))
    })
    .await
}

async fn handle<T: Timers>(
    request: Request<Incoming>,
    shared: &Shared<T>,
    timers: &Arc<T>,
) -> Handled {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => Ok(Bytes::from_static(b"hello\n")),
        (&Method::GET, "/slow") => {
            let query = request.uri().query().and_then(|query| query.strip_prefix("ms="));
            let ms = query.and_then(|ms| ms.parse().ok()).ok_or(StatusCode::BAD_REQUEST)?;
            let _ = timers.sleep(Duration::from_millis(ms)).await;
            Ok(Bytes::from_static(b"slow\n"))
        }
        (&Method::GET, "/panic") => panic!("a handler panics, as it was asked to"),
        (&Method::POST, "/echo") => {
            let tally = Arc::clone(&shared.tally);
            let patience = Patience::new(Arc::clone(timers), shared.limits.body, tally);
            let body = Limited::new(Moving::new(request.into_body(), patience), GREATEST);
            let body =
                body.collect().await.map_err(|error| match error.is::<LengthLimitError>() {
                    true => StatusCode::PAYLOAD_TOO_LARGE,
                    false => StatusCode::REQUEST_TIMEOUT,
                })?;
            Ok(body.to_bytes())
        }
        _ => Err(StatusCode::NOT_FOUND),
    }
}

impl<T: Timers> Body for Answer<T> {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
