//! A [`Timer`] as hyper's timer, with hyper's own connections, in memory and in virtual time.

use crate::common::{MS, SECOND, Time, settle};
use http_body_util::{Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tourbillon::Builder;
use tourbillon::future::Timer;

const HEAD: &[u8] = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n";
/// The first bytes of an HTTP/2 client, which are the preface and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(b"here"))))
}

type Served = JoinHandle<Result<(), Box<dyn std::error::Error + Send + Sync>>>;

/// An HTTP/1 server with a timeout for heads, and the client's end.
fn http1(timer: &Timer, timeout: Duration) -> (DuplexStream, Served) {
    let (client, server) = duplex(4096);
    let mut builder = http1::Builder::new();
    builder.timer(timer.clone()).header_read_timeout(timeout);
    let connection = builder.serve_connection(TokioIo::new(server), service_fn(answer));
    (client, tokio::spawn(async { Ok(connection.await?) }))
}

/// An HTTP/2 server that pings after `interval` and waits `timeout` for the reply.
fn http2(timer: &Timer, interval: Duration, timeout: Duration) -> (DuplexStream, Served) {
    let (client, server) = duplex(4096);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(timer.clone()).keep_alive_interval(interval).keep_alive_timeout(timeout);
    let connection = builder.serve_connection(TokioIo::new(server), service_fn(answer));
    (client, tokio::spawn(async { Ok(connection.await?) }))
}

/// Asserts that a timeout ended the connection.
async fn assert_timed_out(served: Served) {
    assert!(served.is_finished());
    let error = served.await.unwrap().unwrap_err();
    assert!(error.downcast::<hyper::Error>().unwrap().is_timeout());
}

/// Sends a request and waits for the complete response.
async fn ask(client: &mut DuplexStream) {
    client.write_all(HEAD).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nhere") {
        assert!(client.read_buf(&mut answer).await.unwrap() > 0, "cut off");
    }
}

#[tokio::test]
async fn a_slow_head_is_cut_off_at_its_time() {
    let mut time = Time::new();
    let (mut client, served) = http1(&time.timer, 10 * SECOND);
    let (head, rest) = HEAD.split_at(HEAD.len() - 1);
    time.pass(4 * SECOND).await;
    client.write_all(head).await.unwrap();
    time.pass(6 * SECOND - MS).await;
    assert!(!served.is_finished());
    assert_eq!(time.armed(), 1);
    time.pass(MS).await;
    assert_timed_out(served).await;
    assert!(client.write_all(rest).await.is_err());
    assert_eq!(time.armed(), 0);
}

/// A head that takes nearly all of its time is answered. The next one has the same time, from the
/// end of the answer.
#[tokio::test]
async fn each_head_has_its_time_anew() {
    let mut time = Time::new();
    let (mut client, served) = http1(&time.timer, 10 * SECOND);
    for _ in 0..3 {
        time.pass(10 * SECOND - MS).await;
        ask(&mut client).await;
    }
    time.pass(10 * SECOND - MS).await;
    assert!(!served.is_finished());
    time.pass(MS).await;
    assert_timed_out(served).await;
    assert_eq!(time.armed(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_timer_along() {
    let mut time = Time::new();
    let (mut client, served) = http1(&time.timer, 10 * SECOND);
    ask(&mut client).await;
    time.pass(SECOND).await;
    assert_eq!(time.armed(), 1);
    drop(client);
    served.await.unwrap().unwrap();
    assert_eq!(time.armed(), 0);
}

#[tokio::test]
async fn a_peer_that_answers_no_ping_is_cut_off() {
    let mut time = Time::new();
    let (mut client, served) = http2(&time.timer, 20 * SECOND, 5 * SECOND);
    client.write_all(HELLO).await.unwrap();
    time.pass(20 * SECOND).await; // the ping is sent
    time.pass(5 * SECOND - MS).await;
    assert!(!served.is_finished());
    time.pass(MS).await;
    assert_timed_out(served).await;
    assert_eq!(time.armed(), 0);
}

/// The client's end of HTTP/2 answers pings and sends its own.
#[tokio::test]
async fn a_peer_that_answers_pings_is_kept() {
    let mut time = Time::new();
    let (client, served) = http2(&time.timer, 20 * SECOND, 5 * SECOND);
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(time.timer.clone()).keep_alive_interval(30 * SECOND).keep_alive_while_idle(true);
    let (mut requests, connection) = builder.handshake(TokioIo::new(client)).await.unwrap();
    let connected = tokio::spawn(connection);
    let request = Request::new(Empty::<Bytes>::new());
    assert!(requests.send_request(request).await.unwrap().status().is_success());
    for _ in 0..100 {
        time.pass(10 * SECOND).await;
    }
    assert!(!served.is_finished() && !connected.is_finished());
    assert_eq!(time.armed(), 2);
    drop(requests);
    connected.await.unwrap().unwrap();
    served.await.unwrap().unwrap();
    assert_eq!(time.armed(), 0);
}

#[tokio::test]
async fn a_client_cuts_off_a_server_that_answers_no_ping() {
    let mut time = Time::new();
    let (client, _server) = duplex(4096);
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.timer(time.timer.clone()).keep_alive_while_idle(true);
    builder.keep_alive_interval(20 * SECOND).keep_alive_timeout(5 * SECOND);
    let handshake = builder.handshake::<_, Empty<Bytes>>(TokioIo::new(client));
    let (_requests, connection) = handshake.await.unwrap();
    let connected = tokio::spawn(async { Ok(connection.await?) });
    time.pass(20 * SECOND).await;
    time.pass(5 * SECOND - MS).await;
    assert!(!connected.is_finished());
    time.pass(MS).await;
    assert_timed_out(connected).await;
    settle().await;
    assert_eq!(time.armed(), 0);
}

/// The server of hyper-util for both versions has the same two timeouts.
#[tokio::test]
async fn a_server_of_both_versions_has_the_time_outs_of_each() {
    let mut time = Time::new();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(time.timer.clone()).header_read_timeout(10 * SECOND);
    builder.http2().timer(time.timer.clone()).keep_alive_interval(7 * SECOND);
    builder.http2().keep_alive_timeout(3 * SECOND);
    for hello in [&HEAD[..5], HELLO] {
        let (mut client, server) = duplex(4096);
        client.write_all(hello).await.unwrap();
        let builder = builder.clone();
        let served: Served = tokio::spawn(async move {
            builder.serve_connection(TokioIo::new(server), service_fn(answer)).await
        });
        time.pass(7 * SECOND).await;
        time.pass(3 * SECOND - MS).await;
        assert!(!served.is_finished());
        time.pass(MS).await;
        assert_timed_out(served).await;
    }
    assert_eq!(time.armed(), 0);
}

/// A shutdown of the timer ends all connections that wait, and later ones.
#[tokio::test]
async fn a_timer_that_is_shut_down_cuts_its_connections() {
    let mut time = Time::new();
    let (mut first, waits) = http1(&time.timer, 10 * SECOND);
    let (mut second, pings) = http2(&time.timer, 20 * SECOND, 5 * SECOND);
    ask(&mut first).await;
    second.write_all(HELLO).await.unwrap();
    time.pass(SECOND).await;
    assert_eq!(time.armed(), 2);
    time.timer.shutdown();
    settle().await;
    assert_timed_out(waits).await;
    assert_timed_out(pings).await;
    let (_third, late) = http1(&time.timer, 10 * SECOND);
    settle().await;
    assert_timed_out(late).await;
    assert_eq!(time.armed(), 0);
}

/// A refused sleep yields once, and a reset starts again, so neither blocks a thread.
#[test]
fn a_refused_sleep_ends_but_holds_no_thread() {
    let time = Time::new();
    let mut context = Context::from_waker(Waker::noop());
    let before = rt::Timer::now(&time.timer);
    time.timer.shutdown();
    assert!(rt::Timer::now(&time.timer) > before + 1000 * 86_400 * SECOND);
    let mut sleep = rt::Timer::sleep(&time.timer, SECOND);
    for _ in 0..2 {
        assert!(sleep.as_mut().poll(&mut context).is_pending());
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        assert!(sleep.as_mut().poll(&mut context).is_ready());
        rt::Timer::reset(&time.timer, &mut sleep, before + SECOND);
    }
}

#[tokio::test]
async fn a_reset_does_not_allocate() {
    let mut time = Time::new();
    let hour = 3600 * SECOND;
    let mut sleep = rt::Timer::sleep(&time.timer, hour);
    let mut context = Context::from_waker(Waker::noop());
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    let deadline = rt::Timer::now(&time.timer) + 2 * hour;
    let allocations = allocation_counter::measure(|| {
        for second in 0..1000 {
            rt::Timer::reset(&time.timer, &mut sleep, deadline + second * SECOND);
            assert!(sleep.as_mut().poll(&mut context).is_pending());
        }
    });
    assert_eq!(allocations.count_total, 0);
    time.pass(2 * hour).await;
    assert!(sleep.as_mut().poll(&mut context).is_pending());
    time.pass(999 * SECOND).await;
    assert!(sleep.as_mut().poll(&mut context).is_ready());
    assert_eq!(time.armed(), 0);
}

/// A sleep of another timer is replaced by one of this crate.
#[tokio::test]
async fn a_reset_takes_over_the_sleep_of_another_timer() {
    let mut time = Time::new();
    let mut sleep = rt::Timer::sleep(&TokioTimer::new(), 3600 * SECOND);
    rt::Timer::reset(&time.timer, &mut sleep, time.timer.now() + SECOND);
    let slept = tokio::spawn(sleep);
    time.pass(SECOND - MS).await;
    assert!(!slept.is_finished());
    time.pass(MS).await;
    assert!(slept.is_finished());
}

/// A timeout that counts from hyper's `now` is not early, even if the clock lags.
#[test]
fn now_is_not_behind_the_truth() {
    #[derive(Debug)]
    struct Coarse(Instant);
    impl tourbillon::Clock for Coarse {
        fn now(&self) -> Instant {
            self.0
        }
        fn lag(&self) -> Duration {
            4 * MS
        }
    }
    let start = tourbillon::ManualClock::new().start();
    let (wheel, _sweeper) = Builder::new().clock(Coarse(start)).build().unwrap();
    assert_eq!(rt::Timer::now(&Timer::new(wheel)), start + 4 * MS);
}

/// A timeout with a driver, over a socket and in real time, is neither early nor lost.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "real time is what is tested")]
async fn over_a_socket_in_real_time() {
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let start = Instant::now();
    let mut client = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let mut builder = http1::Builder::new();
    builder.timer(timer.clone()).header_read_timeout(20 * MS);
    let connection = builder.serve_connection(TokioIo::new(server), service_fn(answer));
    let served = tokio::spawn(connection);
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    assert!(start.elapsed() >= 20 * MS);
    assert!(served.await.unwrap().unwrap_err().is_timeout());
    assert!(timer.wheel().is_empty());
}

/// Boxed sleeps can be sent wherever hyper's tasks go.
#[test]
fn a_sleep_goes_anywhere() {
    fn goes_anywhere<T: Send + Sync + Unpin>(_: T) {}
    let sleep: Pin<Box<dyn rt::Sleep>> = rt::Timer::sleep(&Time::new().timer, SECOND);
    goes_anywhere(sleep);
}
