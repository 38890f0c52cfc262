//! Timeouts of tower services and of HTTP bodies, in virtual time.

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::{Ready, pending, ready};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tourbillon::future::{self, Deadline, TimeoutError, Timer};
use tourbillon::http::{
    self, BodyTimeoutError, RequestBodyTimeoutLayer, ResponseBodyTimeoutLayer, TimeoutBody,
};
use tourbillon::tower::{AwaitReadyLayer, BoxError, TimeoutLayer, TimeoutService};
use tourbillon::{Builder, ManualClock, Refusal, Sweeper};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A timer that is swept by hand, and a task that is polled after a wake-up.
struct Hand {
    timer: Timer,
    clock: ManualClock,
    sweeper: Sweeper<future::SleepWaker>,
    woken: Arc<Woken>,
    waker: Waker,
}

impl Hand {
    fn new() -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        Self { timer: Timer::new(wheel), clock, sweeper, woken, waker }
    }

    /// Advances the time, and returns `true` if the task was woken.
    fn advance(&mut self, step: Duration) -> bool {
        self.clock.advance(step);
        let _ = self.sweeper.sweep(|timer| timer.value.wake());
        self.was_woken()
    }

    fn was_woken(&self) -> bool {
        self.woken.0.swap(0, SeqCst) > 0
    }

    /// Polls a future that yields once before it is refused, which wakes its task.
    fn refused<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        assert!(self.poll(future).is_pending());
        assert!(self.was_woken(), "nobody else would poll again");
        self.poll(future)
    }

    fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(&self.waker))
    }

    fn armed(&self) -> usize {
        self.timer.wheel().len()
    }
}

/// The output of a future that is ready.
#[track_caller]
fn now<T>(poll: Poll<T>) -> T {
    match poll {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("not ready"),
    }
}

fn timed_out(answer: Result<impl Sized, BoxError>) -> Option<TimeoutError> {
    answer.err()?.downcast().ok().map(|error| *error)
}

#[test]
fn a_response_in_time_is_passed_on_and_leaves_no_timer() {
    let mut hand = Hand::new();
    let (answer, later) = oneshot::channel();
    let mut later = Some(later);
    let service = service_fn(move |_: ()| later.take().unwrap());
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(service);
    let mut response = Box::pin(service.call(()));
    assert!(hand.poll(&mut response).is_pending());
    assert_eq!(hand.armed(), 1);

    hand.advance(SECOND - MS);
    answer.send("in time").unwrap();
    assert!(hand.was_woken());
    assert_eq!(now(hand.poll(&mut response)).unwrap(), "in time");
    drop(response);
    assert_eq!(hand.armed(), 0);
    assert_eq!(hand.timer.wheel().metrics().cancelled, 1);
}

#[test]
fn a_late_response_ends_in_an_error_and_not_early() {
    let mut hand = Hand::new();
    let silent = service_fn(|_: ()| pending::<Result<(), Infallible>>());
    let service =
        ServiceBuilder::new().layer(TimeoutLayer::new(hand.timer.clone(), SECOND)).service(silent);
    let mut response = Box::pin(service.oneshot(()));
    assert!(hand.poll(&mut response).is_pending());

    assert!(!hand.advance(SECOND - MS));
    assert!(hand.poll(&mut response).is_pending());
    assert!(hand.advance(MS));
    let error = now(hand.poll(&mut response)).unwrap_err();
    assert_eq!(error.to_string(), "the timeout has elapsed");
    assert_eq!(error.downcast_ref(), Some(&TimeoutError::Elapsed));
    assert_eq!(hand.armed(), 0);
}

#[test]
fn the_time_counts_from_the_call() {
    let mut hand = Hand::new();
    let silent = service_fn(|_: ()| pending::<Result<(), Infallible>>());
    let mut service = TimeoutService::new(silent, hand.timer.clone(), SECOND);
    hand.advance(SECOND); // before the call: it does not count
    let mut response = Box::pin(service.call(()));
    hand.advance(SECOND - MS); // before the first poll: it does
    assert!(hand.poll(&mut response).is_pending());
    assert!(hand.advance(MS));
    assert_eq!(timed_out(now(hand.poll(&mut response))), Some(TimeoutError::Elapsed));
}

#[test]
fn a_dropped_response_cancels_its_timer() {
    let hand = Hand::new();
    let silent = service_fn(|_: ()| pending::<Result<(), Infallible>>());
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(silent);
    let mut responses: Vec<_> = (0..10).map(|_| Box::pin(service.call(()))).collect();
    for response in &mut responses {
        assert!(hand.poll(response).is_pending());
    }
    assert_eq!(hand.armed(), 10);
    drop(responses);
    assert_eq!(hand.armed(), 0);
    assert!(!hand.was_woken());
}

#[test]
fn no_request_goes_without_its_time_out() {
    let hand = Hand::new();
    let silent = service_fn(|_: ()| pending::<Result<(), Infallible>>());
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(silent);
    let mut response = Box::pin(service.call(()));
    assert!(hand.poll(&mut response).is_pending());
    hand.timer.shutdown();
    assert!(hand.was_woken());
    let refused = Some(TimeoutError::Refused(Refusal::Closed));
    assert_eq!(timed_out(now(hand.poll(&mut response))), refused);
    let mut late = Box::pin(service.call(()));
    assert_eq!(timed_out(now(hand.refused(&mut late))), refused);

    // An immediate response needs no timer.
    let prompt = service_fn(|()| ready(Ok::<_, Infallible>("prompt")));
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(prompt);
    assert_eq!(now(hand.poll(&mut Box::pin(service.call(())))).unwrap(), "prompt");
}

/// A service that must be ready before a call. Its clones start again.
#[derive(Default)]
struct Strict {
    polls: usize,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<()> for Strict {
    type Response = ();
    type Error = io::Error;
    type Future = Ready<io::Result<()>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        match self.polls {
            1 => Poll::Pending,
            2 => Poll::Ready(Ok(())),
            _ => Poll::Ready(Err(io::Error::other("worn out"))),
        }
    }

    fn call(&mut self, (): ()) -> Self::Future {
        assert_eq!(self.polls, 2, "called before it was ready");
        ready(Ok(()))
    }
}

#[test]
fn readiness_is_that_of_the_service_and_not_of_its_clone() {
    let hand = Hand::new();
    let mut context = Context::from_waker(Waker::noop());
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(Strict::default());
    assert!(service.poll_ready(&mut context).is_pending());
    assert!(now(service.poll_ready(&mut context)).is_ok());
    let clone = service.clone();
    assert_eq!(clone.get_ref().polls, 0);
    now(hand.poll(&mut Box::pin(service.call(())))).unwrap();

    let error = now(service.poll_ready(&mut context)).unwrap_err();
    assert_eq!(error.downcast::<io::Error>().unwrap().to_string(), "worn out");
    assert_eq!(clone.into_inner().polls, 0);
}

/// A service whose clones are not ready before it is opened.
#[derive(Clone)]
struct Gate(Arc<AtomicBool>);

impl<Request> Service<Request> for Gate {
    type Response = Response<String>;
    type Error = Infallible;
    type Future = Ready<Result<Response<String>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if self.0.load(SeqCst) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request) -> Self::Future {
        assert!(self.0.load(SeqCst), "called before it was ready");
        ready(Ok(Response::new(String::from("answered"))))
    }
}

#[test]
fn a_timeout_covers_readiness_that_is_awaited_in_the_call() {
    let mut hand = Hand::new();
    let gate = Gate(Arc::default());
    let mut service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(hand.timer.clone(), SECOND))
        .layer(AwaitReadyLayer::new())
        .service(gate.clone());
    let mut late = Box::pin(ServiceExt::<()>::ready_oneshot(service.clone()));
    let _ready = now(hand.poll(&mut late)).unwrap();
    let mut response = Box::pin(service.call(()));
    assert!(hand.poll(&mut response).is_pending());
    assert!(hand.advance(SECOND));
    assert_eq!(timed_out(now(hand.poll(&mut response))), Some(TimeoutError::Elapsed));
    assert_eq!(hand.armed(), 0);

    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut service = ServiceBuilder::new()
        .layer(http::ResponseTimeoutLayer::with_status_code(hand.timer.clone(), status, SECOND))
        .layer(AwaitReadyLayer::new())
        .service(gate.clone());
    let mut response = Box::pin(service.call(Request::new(())));
    assert!(hand.poll(&mut response).is_pending());
    assert!(hand.advance(SECOND));
    let Ok(answer) = now(hand.poll(&mut response));
    assert_eq!(answer.status(), status);

    // A service that becomes ready in time is called.
    let mut response = Box::pin(service.call(Request::new(())));
    assert!(hand.poll(&mut response).is_pending());
    hand.advance(SECOND - MS);
    gate.0.store(true, SeqCst);
    let Ok(answer) = now(hand.poll(&mut response));
    assert_eq!((answer.status(), answer.into_body().as_str()), (StatusCode::OK, "answered"));
}

/// The clone that is called is the one that was ready.
#[test]
fn what_is_awaited_is_what_is_called() {
    let hand = Hand::new();
    let mut service = AwaitReadyLayer::new().layer(Strict::default());
    for _ in 0..2 {
        let mut response = Box::pin(service.call(()));
        assert!(hand.poll(&mut response).is_pending());
        now(hand.poll(&mut response)).unwrap();
    }
    let worn_out = Strict { polls: 2 };
    assert!(now(hand.poll(&mut Box::pin(worn_out.oneshot(())))).is_err());
}

#[test]
fn the_error_of_the_service_is_passed_on() {
    let hand = Hand::new();
    let broken = service_fn(|_: ()| ready(Err::<(), _>(io::Error::other("broken"))));
    let mut service = TimeoutLayer::new(hand.timer.clone(), SECOND).layer(broken);
    let error = now(hand.poll(&mut Box::pin(service.call(())))).unwrap_err();
    assert_eq!(error.downcast::<io::Error>().unwrap().to_string(), "broken");
}

#[test]
fn a_late_http_response_is_a_status() {
    for status in [StatusCode::REQUEST_TIMEOUT, StatusCode::GATEWAY_TIMEOUT] {
        let mut hand = Hand::new();
        let silent = service_fn(|_: Request<()>| pending::<Result<Response<String>, Infallible>>());
        let layer =
            http::ResponseTimeoutLayer::with_status_code(hand.timer.clone(), status, SECOND);
        let mut service = layer.layer(silent);
        let mut response = Box::pin(service.call(Request::new(())));
        assert!(hand.poll(&mut response).is_pending());
        assert!(!hand.advance(SECOND - MS));
        assert!(hand.poll(&mut response).is_pending());
        assert!(hand.advance(MS));
        let Ok(response) = now(hand.poll(&mut response));
        assert_eq!((response.status(), response.body().as_str()), (status, ""));
        assert_eq!(hand.armed(), 0);

        // The timer was shut down, which is not the client's fault.
        hand.timer.shutdown();
        let mut late = Box::pin(service.call(Request::new(())));
        let Ok(response) = now(hand.refused(&mut late));
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}

/// A request has an earlier deadline than the layer's limit, so its status is not the layer's.
#[test]
fn a_deadline_is_no_limit_of_the_layer() {
    let mut hand = Hand::new();
    let silent = service_fn(|_: Request<()>| pending::<Result<Response<String>, Infallible>>());
    let status = StatusCode::REQUEST_TIMEOUT;
    let layer =
        http::ResponseTimeoutLayer::with_status_code(hand.timer.clone(), status, 2 * SECOND);
    for (deadline, status, error) in [
        (SECOND, StatusCode::GATEWAY_TIMEOUT, TimeoutError::Deadline),
        (3 * SECOND, status, TimeoutError::Elapsed),
    ] {
        let under = Deadline::at(hand.timer.now() + deadline);
        let mut response = Box::pin(under.run(|| layer.layer(silent).call(Request::new(()))));
        assert!(hand.poll(&mut response).is_pending());
        assert!(hand.advance(deadline.min(2 * SECOND)));
        let Ok(response) = now(hand.poll(&mut response));
        assert_eq!((response.status(), response.extensions().get()), (status, Some(&error)));
    }

    let under = Deadline::at(hand.timer.now() + SECOND);
    let silent = service_fn(|_: ()| pending::<Result<(), Infallible>>());
    let mut service = TimeoutLayer::new(hand.timer.clone(), 2 * SECOND).layer(silent);
    let mut response = Box::pin(under.run(|| service.call(())));
    assert!(hand.poll(&mut response).is_pending());
    assert!(hand.advance(SECOND));
    assert_eq!(timed_out(now(hand.poll(&mut response))), Some(TimeoutError::Deadline));
}

#[test]
fn an_http_response_in_time_stays_what_it_is() {
    let hand = Hand::new();
    let status = StatusCode::GATEWAY_TIMEOUT;
    let layer = http::ResponseTimeoutLayer::with_status_code(hand.timer.clone(), status, SECOND);
    let prompt = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new("prompt"))));
    let mut response = Box::pin(layer.layer(prompt).call(Request::new(())));
    let Ok(response) = now(hand.poll(&mut response));
    assert_eq!((response.status(), response.into_body()), (StatusCode::OK, "prompt"));

    let broken = service_fn(|_: Request<()>| ready(Err::<Response<String>, _>("broken")));
    let mut response = Box::pin(layer.layer(broken).call(Request::new(())));
    assert_eq!(now(hand.poll(&mut response)).unwrap_err(), "broken");
}

/// A body whose frames come from a channel.
struct Fed(mpsc::UnboundedReceiver<Result<&'static str, io::Error>>);

impl Body for Fed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let data = |text: &'static str| Frame::data(Bytes::from_static(text.as_bytes()));
        self.0.poll_recv(context).map(|fed| fed.map(|fed| fed.map(data)))
    }
}

type Feed = mpsc::UnboundedSender<Result<&'static str, io::Error>>;

fn fed() -> (Feed, Fed) {
    let (feed, body) = mpsc::unbounded_channel();
    (feed, Fed(body))
}

/// Returns the next frame of a body, as text.
fn next<B>(hand: &Hand, body: &mut B) -> Poll<Option<Result<Bytes, BoxError>>>
where
    B: Body<Data = Bytes, Error = BoxError> + Unpin,
{
    let frame = hand.poll(&mut body.frame());
    frame.map(|frame| frame.map(|frame| frame.map(|frame| frame.into_data().unwrap())))
}

fn stands_still(frame: Poll<Option<Result<Bytes, BoxError>>>) -> BodyTimeoutError {
    *now(frame).unwrap().unwrap_err().downcast().unwrap()
}

#[test]
fn a_body_that_moves_may_take_its_time() {
    let mut hand = Hand::new();
    let (feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    for _ in 0..100 {
        assert!(next(&hand, &mut body).is_pending());
        hand.advance(SECOND - MS);
        assert!(next(&hand, &mut body).is_pending());
        feed.send(Ok("frame")).unwrap();
        assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "frame");
    }
    // A single timer, which is moved.
    assert_eq!(hand.timer.wheel().metrics().inserted, 1);
    drop(feed);
    assert!(now(next(&hand, &mut body)).is_none());
    assert_eq!(hand.armed(), 0);
}

#[test]
fn a_body_that_stands_still_ends_in_an_error_and_not_early() {
    let mut hand = Hand::new();
    let (feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    hand.advance(500 * MS);
    assert!(next(&hand, &mut body).is_pending());
    hand.advance(500 * MS);
    feed.send(Ok("the last")).unwrap();
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "the last");

    assert!(next(&hand, &mut body).is_pending());
    hand.was_woken();
    assert!(!hand.advance(SECOND - MS));
    assert!(next(&hand, &mut body).is_pending());
    assert!(hand.advance(MS));
    assert_eq!(stands_still(next(&hand, &mut body)), BodyTimeoutError::Elapsed);
    assert!(body.is_end_stream());
    assert!(now(next(&hand, &mut body)).is_none());
    assert_eq!(hand.armed(), 0);
}

#[test]
fn reading_slowly_is_not_the_bodys_fault() {
    let mut hand = Hand::new();
    let (feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    hand.advance(10 * SECOND); // before the first read
    assert!(next(&hand, &mut body).is_pending());
    feed.send(Ok("one")).unwrap();
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "one");
    hand.advance(10 * SECOND); // between two reads
    assert!(next(&hand, &mut body).is_pending());
    hand.advance(SECOND - MS);
    assert!(next(&hand, &mut body).is_pending());
    // A frame that is available counts, however late it is read.
    feed.send(Ok("two")).unwrap();
    hand.advance(10 * SECOND);
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "two");
}

#[test]
fn a_body_that_is_there_needs_no_timer() {
    let hand = Hand::new();
    let (feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    feed.send(Ok("one")).unwrap();
    feed.send(Err(io::Error::other("broken"))).unwrap();
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "one");
    let error = now(next(&hand, &mut body)).unwrap().unwrap_err();
    assert_eq!(error.downcast::<io::Error>().unwrap().to_string(), "broken");
    assert!(now(next(&hand, &mut body)).is_none());
    assert_eq!(hand.timer.wheel().metrics().inserted, 0);
}

/// A body has one frame per second and a limit of two seconds for a frame. A limit for the whole
/// body ends it, whether it waits or has a frame when it is read.
#[test]
fn a_body_that_drips_ends_by_the_limit_for_the_whole() {
    for waited_for in [false, true] {
        let mut hand = Hand::new();
        let (feed, body) = fed();
        let body = TimeoutBody::new(body, &hand.timer, 2 * SECOND);
        let mut body = body.with_total_timeout(10 * SECOND);
        for _ in 1..10 {
            if waited_for {
                assert!(next(&hand, &mut body).is_pending());
            }
            hand.advance(SECOND);
            feed.send(Ok("drop")).unwrap();
            assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "drop");
        }
        assert!(next(&hand, &mut body).is_pending());
        if !waited_for {
            feed.send(Ok("drop")).unwrap();
        }
        hand.was_woken();
        assert!(hand.advance(SECOND));
        assert_eq!(stands_still(next(&hand, &mut body)), BodyTimeoutError::Total);
        assert!(body.is_end_stream() && now(next(&hand, &mut body)).is_none());
        assert_eq!(hand.armed(), 0);
    }
}

#[test]
fn a_body_that_is_whole_in_time_leaves_no_timer() {
    let mut hand = Hand::new();
    let (feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND).with_total_timeout(2 * SECOND);
    assert!(next(&hand, &mut body).is_pending());
    assert_eq!(hand.armed(), 2);
    feed.send(Ok("all")).unwrap();
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "all");
    drop(feed);
    assert!(now(next(&hand, &mut body)).is_none());
    assert_eq!(hand.armed(), 0);

    // The limit for a frame also applies.
    let (_feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND).with_total_timeout(2 * SECOND);
    assert!(next(&hand, &mut body).is_pending());
    assert!(hand.advance(SECOND));
    assert_eq!(stands_still(next(&hand, &mut body)), BodyTimeoutError::Elapsed);
    assert_eq!(hand.armed(), 0);
}

#[test]
fn layers_limit_whole_bodies_of_requests_and_responses() {
    let mut hand = Hand::new();
    let echo = service_fn(|request: Request<TimeoutBody<Fed>>| {
        ready(Ok::<_, Infallible>(Response::new(request.into_body())))
    });
    let response = ResponseBodyTimeoutLayer::new(hand.timer.clone(), Duration::MAX);
    let request = RequestBodyTimeoutLayer::new(hand.timer.clone(), Duration::MAX);
    for limits in [[2, 3], [3, 2]] {
        let mut service = ServiceBuilder::new()
            .layer(response.clone().with_total_timeout(limits[0] * SECOND))
            .layer(request.clone().with_total_timeout(limits[1] * SECOND))
            .service(echo);
        let (feed, body) = fed();
        let Ok(response) = now(hand.poll(&mut Box::pin(service.call(Request::new(body)))));
        let mut body = response.into_body();
        feed.send(Ok("drop")).unwrap();
        assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "drop");
        hand.advance(SECOND);
        assert!(next(&hand, &mut body).is_pending());
        hand.advance(SECOND);
        assert_eq!(stands_still(next(&hand, &mut body)), BodyTimeoutError::Total);
        drop(body);
        assert_eq!(hand.armed(), 0);
    }
}

#[test]
fn a_dropped_body_cancels_its_timer_and_a_shutdown_ends_it() {
    let hand = Hand::new();
    let (_feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    assert!(next(&hand, &mut body).is_pending());
    assert_eq!(hand.armed(), 1);
    drop(body);
    assert_eq!(hand.armed(), 0);

    let (_feed, body) = fed();
    let mut body = TimeoutBody::new(body, &hand.timer, SECOND);
    assert!(next(&hand, &mut body).is_pending());
    hand.timer.shutdown();
    assert!(hand.was_woken());
    let refused = BodyTimeoutError::Refused(Refusal::Closed);
    assert_eq!(stands_still(next(&hand, &mut body)), refused);
}

#[test]
fn layers_give_bodies_of_requests_and_responses_their_time_outs() {
    let mut hand = Hand::new();
    let (feed, body) = fed();
    // The service echoes the body, so two timeouts apply to the same frames.
    let echo = service_fn(|request: Request<TimeoutBody<Fed>>| {
        ready(Ok::<_, Infallible>(Response::new(request.into_body())))
    });
    let mut service = ServiceBuilder::new()
        .layer(ResponseBodyTimeoutLayer::new(hand.timer.clone(), 2 * SECOND))
        .layer(RequestBodyTimeoutLayer::new(hand.timer.clone(), SECOND))
        .service(echo);
    let Ok(response) = now(hand.poll(&mut Box::pin(service.call(Request::new(body)))));
    let mut body = response.into_body();
    feed.send(Ok("frame")).unwrap();
    assert_eq!(now(next(&hand, &mut body)).unwrap().unwrap(), "frame");
    assert!(next(&hand, &mut body).is_pending());
    assert_eq!(hand.armed(), 2);
    assert!(hand.advance(SECOND));
    assert_eq!(stands_still(next(&hand, &mut body)), BodyTimeoutError::Elapsed);
    assert_eq!(hand.armed(), 0);
}
