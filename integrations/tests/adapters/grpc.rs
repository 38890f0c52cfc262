//! Deadlines of gRPC requests, in virtual time: as a client says them, as the server keeps them,
//! and as tonic reads what came of them.

use hyper::{Request, Response};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::time::Duration;
use tonic::{Code, Status};
use tourbillon::future::{Deadline, TimeoutError, Timer};
use tourbillon::http::{GrpcDeadlineLayer, GrpcTimeoutLayer};
use tourbillon::{Builder, ManualClock, testing};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// A service that answers after so long, by the deadline that it is under.
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

/// When a request with this header was answered, and how.
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
        assert!(timer.wheel().is_empty());
        let status = Status::from_header_map(response.headers());
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

/// Answers what it is told by the header.
async fn tells(request: Request<()>) -> Result<Option<String>, Infallible> {
    let told = request.headers().get("grpc-timeout");
    Ok(told.map(|value| value.to_str().unwrap().to_owned()))
}

/// A server asks another one: what the latter is told is what the former has left.
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
    assert_eq!(told.as_deref(), Some("3000000u"));
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
