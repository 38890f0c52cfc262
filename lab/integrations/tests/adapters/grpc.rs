//! Deadlines of gRPC requests in virtual time, as sent by a client, enforced by the server, and
//! read by tonic.

use crate::common::{MS, SECOND};
use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tonic::{Code, Status};
use tourbillon::future::{Deadline, Sleep, TimeoutError, Timer};
use tourbillon::http::{GrpcDeadlineLayer, GrpcTimeoutLayer, ResponseTimeoutLayer};
use tourbillon::{Builder, ManualClock, testing};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

/// A service that answers after a delay, under the deadline of its scope.
fn answers_after(
    timer: Timer,
    delay: Duration,
) -> impl Service<
    Request<()>,
    Response = Response<String>,
    Error = Infallible,
    Future = impl Future<Output = Result<Response<String>, Infallible>>,
> {
    service_fn(move |request: Request<()>| {
        let (sleep, called_under) = (timer.sleep(delay), Deadline::current());
        async move {
            assert_eq!(request.extensions().get(), called_under.as_ref());
            assert_eq!(Deadline::current(), called_under);
            sleep.await.unwrap();
            Ok(Response::new(String::from("answered")))
        }
    })
}

/// The time and the status of the answer to a request with this header.
fn answered(header: Option<&str>, at_most: Option<Duration>, after: Duration) -> (Duration, Code) {
    testing::block_on(|timer| async move {
        let mut layer = GrpcTimeoutLayer::new(timer.clone());
        if let Some(at_most) = at_most {
            layer = layer.at_most(at_most);
        }
        let mut service = layer.layer(answers_after(timer.clone(), after));
        let mut request = Request::new(());
        if let Some(header) = header {
            request.headers_mut().insert("grpc-timeout", header.parse().unwrap());
        }
        let start = timer.now();
        let Ok(response) = service.ready().await.unwrap().call(request).await;
        let status = Status::from_header_map(response.headers());
        drop(response); // whose body is under the deadline too
        assert!(timer.wheel().is_empty());
        (timer.now() - start, status.map_or(Code::Ok, |status| status.code()))
    })
}

#[test]
fn a_request_ends_at_the_deadline_that_its_client_has_given_it() {
    let late = (SECOND * 2, Code::DeadlineExceeded);
    assert_eq!(answered(Some("2S"), None, SECOND * 5), late);
    assert_eq!(answered(Some("2S"), None, SECOND), (SECOND, Code::Ok));
    assert_eq!(answered(None, None, SECOND * 5), (SECOND * 5, Code::Ok));
    assert_eq!(answered(Some("soon"), None, SECOND * 5), (SECOND * 5, Code::Ok));
}

#[test]
fn a_server_allows_so_much_time_at_most() {
    let late = (SECOND * 2, Code::DeadlineExceeded);
    assert_eq!(answered(Some("9S"), Some(SECOND * 2), SECOND * 5), late);
    assert_eq!(answered(Some("2S"), Some(SECOND * 9), SECOND * 5), late);
    assert_eq!(answered(None, Some(SECOND * 2), SECOND * 5), late);
}

/// A timeout within the service ends at the same instant.
#[test]
fn no_inner_timeout_answers_in_place_of_the_deadline() {
    let code = |response: &Response<_>| Status::from_header_map(response.headers()).unwrap().code();
    testing::block_on(|timer| async move {
        let request = || Request::builder().header("grpc-timeout", "50m").body(()).unwrap();
        let silent = service_fn(|_: Request<()>| pending::<Result<Response<String>, Infallible>>());
        let gateway = StatusCode::GATEWAY_TIMEOUT;
        let layers = ServiceBuilder::new()
            .layer(GrpcTimeoutLayer::new(timer.clone()))
            .layer(ResponseTimeoutLayer::with_status_code(timer.clone(), gateway, SECOND * 30));
        let start = timer.now();
        let Ok(response) = layers.service(silent).oneshot(request()).await;
        assert_eq!((timer.now() - start, response.status()), (MS * 50, StatusCode::OK));
        assert_eq!(code(&response), Code::DeadlineExceeded);

        // A handler that reports a slow backend as unavailable, and one that reports it as an
        // error.
        for fails in [false, true] {
            let backend = timer.clone();
            let handler = service_fn(move |_: Request<()>| {
                let asked = backend.timeout(SECOND * 30, pending::<()>());
                async move {
                    assert_eq!(asked.await, Err(TimeoutError::Deadline));
                    let response = Response::builder().header("grpc-status", "14");
                    if fails {
                        Err("unavailable")
                    } else {
                        Ok(response.body(String::new()).unwrap())
                    }
                }
            });
            let service = GrpcTimeoutLayer::new(timer.clone()).layer(handler);
            let response = service.oneshot(request()).await.unwrap();
            assert_eq!(code(&response), Code::DeadlineExceeded);
        }
        assert!(timer.wheel().is_empty());
    });
}

/// A body with a frame per period, as long as its deadline has not passed.
struct Ticks {
    timer: Timer,
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

impl Ticks {
    fn each(timer: &Timer, pause: Duration) -> Self {
        Self { timer: timer.clone(), pause, next: Box::pin(timer.sleep(pause)) }
    }
}

impl Body for Ticks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        assert!(Deadline::current().is_some());
        ready!(self.next.as_mut().poll(context)).unwrap();
        let pause = self.timer.sleep(self.pause);
        self.next.set(pause);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"tick")))))
    }
}

/// A stream of answers ends at the deadline of the whole call. One stream has pauses, one stalls,
/// and one never waits.
#[test]
fn a_stream_of_answers_ends_at_the_deadline() {
    for (pause, expected) in [(3, 3), (100, 0), (0, 0)] {
        let (took, count, code) = testing::block_on(|timer| async move {
            let streams = service_fn(|_: Request<()>| {
                let (work, body) = (timer.sleep(SECOND), Ticks::each(&timer, SECOND * pause));
                async move {
                    work.await.unwrap();
                    Ok::<_, Infallible>(Response::new(body))
                }
            });
            let service = GrpcTimeoutLayer::new(timer.clone()).layer(streams);
            let request = Request::builder().header("grpc-timeout", "10S").body(()).unwrap();
            let start = timer.now();
            let Ok(response) = service.oneshot(request).await;
            assert!(Status::from_header_map(response.headers()).is_none());
            let (mut body, mut count) = (pin!(response.into_body()), 0);
            let trailers = loop {
                let frame = body.as_mut().frame().await.unwrap().unwrap();
                match frame.into_trailers() {
                    Ok(trailers) => break trailers,
                    Err(_data) => count += 1,
                }
                if pause == 0 {
                    // A client that takes a while to read a body that is always ready.
                    timer.sleep(SECOND).await.unwrap();
                }
            };
            assert!(body.is_end_stream() && body.frame().await.is_none());
            let status = Status::from_header_map(&trailers).unwrap();
            (timer.now() - start, count, status.code())
        });
        assert_eq!((took, code), (SECOND * 10, Code::DeadlineExceeded));
        let expected = if pause == 0 { 9 } else { expected };
        assert_eq!(count, expected);
    }
}

/// A body that ends in time is unchanged, and leaves no timer.
#[test]
fn a_stream_of_answers_in_time_stays_what_it_is() {
    testing::block_on(|timer| async move {
        let answers = service_fn(|_: Request<()>| async {
            Ok::<_, Infallible>(Response::new(String::from("answered")))
        });
        let mut service = GrpcTimeoutLayer::new(timer.clone()).layer(answers);
        let Ok(unlimited) = service.call(Request::new(())).await;
        assert_eq!(unlimited.body().size_hint().exact(), Some(8));
        let request = Request::builder().header("grpc-timeout", "10S").body(()).unwrap();
        let Ok(response) = service.call(request).await;
        let hint = response.body().size_hint();
        assert_eq!((hint.lower(), hint.upper()), (0, Some(8)));
        let body = response.into_body().collect().await.unwrap();
        assert!(body.trailers().is_none());
        assert_eq!(body.to_bytes(), "answered");
        assert!(timer.wheel().is_empty());
    });
}

#[test]
fn a_timer_that_refuses_leaves_nobody_without_a_deadline() {
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().clock(clock).build().unwrap();
    let timer = Timer::new(wheel);
    timer.shutdown();
    let silent = service_fn(|_: Request<()>| pending::<Result<Response<String>, Infallible>>());
    let service = GrpcTimeoutLayer::new(timer).at_most(SECOND).layer(silent);
    let Ok(response) = pollster::block_on(service.oneshot(Request::new(())));
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::Unavailable);
}

/// Answers with the value of the header.
async fn tells(request: Request<()>) -> Result<Option<String>, Infallible> {
    let told = request.headers().get("grpc-timeout");
    Ok(told.map(|value| value.to_str().unwrap().to_owned()))
}

/// A server that calls another one forwards its remaining time.
#[test]
fn a_deadline_is_handed_on_to_whom_the_server_asks() {
    let told = testing::block_on(|timer| async move {
        let client = GrpcDeadlineLayer::new(timer.clone()).layer(service_fn(tells));
        let server = service_fn(|_: Request<()>| {
            let (client, work) = (client.clone(), timer.sleep(SECOND * 2));
            async move {
                work.await.unwrap();
                Ok::<_, Infallible>(Response::new(client.oneshot(Request::new(())).await?))
            }
        });
        let server =
            ServiceBuilder::new().layer(GrpcTimeoutLayer::new(timer.clone())).service(server);
        let request = Request::builder().header("grpc-timeout", "5S").body(()).unwrap();
        let Ok(response) = server.oneshot(request).await;
        response.into_body()
    });
    assert_eq!(told.into_inner().flatten().as_deref(), Some("3000000u"));
}

#[test]
fn what_a_request_says_itself_stays_and_the_sooner_deadline_is_told() {
    testing::block_on(|timer| async move {
        let client = GrpcDeadlineLayer::new(timer.clone()).layer(service_fn(tells));
        let ask = |own: Option<Duration>, said: Option<&str>| {
            let mut request = Request::new(());
            if let Some(own) = own {
                request.extensions_mut().insert(Deadline::at(timer.now() + own));
            }
            if let Some(said) = said {
                request.headers_mut().insert("grpc-timeout", said.parse().unwrap());
            }
            let client = client.clone();
            Deadline::at(timer.now() + SECOND).run(|| pollster::block_on(client.oneshot(request)))
        };
        assert_eq!(ask(None, None).unwrap().as_deref(), Some("1000000u"));
        assert_eq!(ask(Some(SECOND / 2), None).unwrap().as_deref(), Some("500000u"));
        assert_eq!(ask(Some(SECOND * 2), None).unwrap().as_deref(), Some("1000000u"));
        assert_eq!(ask(None, Some("7S")).unwrap().as_deref(), Some("7S"));
        let free = client.oneshot(Request::new(())).await;
        assert_eq!(free, Ok(None), "under no deadline");
    });
}

#[test]
fn a_time_out_under_a_deadline_ends_at_the_sooner_of_both() {
    testing::block_on(|timer| async move {
        let (elapsed, over) = (TimeoutError::Elapsed, TimeoutError::Deadline);
        for (limit, deadline, sooner, error) in
            [(3, 5, 3, elapsed), (5, 3, 3, over), (4, 4, 4, over)]
        {
            let start = timer.now();
            let under = Deadline::at(start + SECOND * deadline);
            let silent = under.run(|| timer.timeout(SECOND * limit, pending::<()>()));
            assert_eq!(silent.await, Err(error));
            assert_eq!(timer.now() - start, SECOND * sooner);
            let start = timer.now();
            let under = Deadline::at(start + SECOND * deadline);
            let silent = under
                .scope(async { timer.timeout_at(start + SECOND * limit, pending::<()>()).await });
            assert_eq!(silent.await, Err(error));
            assert_eq!(timer.now() - start, SECOND * sooner);
        }
    });
}

#[test]
fn a_scope_ends_with_each_poll_and_each_panic() {
    let deadline = Deadline::at(ManualClock::new().start());
    let panics = std::panic::catch_unwind(|| deadline.run(|| panic!("inside")));
    assert!(panics.is_err());
    assert_eq!(Deadline::current(), None);
    let scoped = deadline.scope(async {
        assert_eq!(Deadline::current(), Some(deadline));
        tokio::task::yield_now().await;
        Deadline::current()
    });
    let beside = async {
        tokio::task::yield_now().await;
        Deadline::current()
    };
    let both = async { tokio::join!(scoped, beside) };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(both), (Some(deadline), None));
}

#[test]
fn of_two_deadlines_the_sooner_holds_and_the_outer_one_comes_back() {
    let soon = Deadline::at(ManualClock::new().start());
    let late = Deadline::at(soon.instant() + SECOND);
    for (outer, inner) in [(soon, late), (late, soon)] {
        outer.run(|| {
            assert_eq!(inner.run(Deadline::current), Some(soon));
            assert_eq!(Deadline::current(), Some(outer));
        });
    }
}
