//! Threads that are held up over a limit.
//!
//! If a runtime's thread is held up, bytes that came before the limit are read. These tests run in
//! real time and over sockets, because they depend on the order that a runtime sees the events in.
//! If a driver's thread is held up, a stream that is always ready still ends at its deadline. These
//! tests run in virtual time.

#![allow(clippy::disallowed_methods, reason = "the thread is held up by a sleep")]

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use smol::stream::{StreamExt, unfold};
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{self, TcpListener};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tourbillon::future::{Sleep, Timer};
use tourbillon::http::TimeoutBody;
use tourbillon::io::TimeoutStream;
use tourbillon::{Builder, Clock, ManualClock};

const LIMIT: Duration = Duration::from_millis(150);
const MS: Duration = Duration::from_millis(1);
const CLIENTS: usize = 16;
const ROUNDS: usize = 3;

/// A runtime of one thread, and some whose idle workers do not all wait for sockets.
fn runtimes() -> impl Iterator<Item = Runtime> {
    (0..4).map(|workers| match workers {
        0 => RuntimeBuilder::new_current_thread().enable_all().build().unwrap(),
        _ => {
            let mut builder = RuntimeBuilder::new_multi_thread();
            builder.worker_threads(workers).enable_all().build().unwrap()
        }
    })
}

/// Creates the ends of a server and of its clients.
fn connections() -> (Vec<TcpStream>, Vec<net::TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = |_| {
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        (TcpStream::from_std(server).unwrap(), client)
    };
    (0..CLIENTS).map(connect).unzip()
}

/// Returns the number of connections that were given up, although their request had arrived half of
/// the limit before it passed. The thread is held up for `hold`. Returns `None` if the clients were
/// late themselves.
async fn round<F>(hold: Duration, serve: impl Fn(Timer, TcpStream) -> F) -> Option<usize>
where
    F: Future<Output = bool> + Send + 'static,
{
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    let (servers, mut clients) = connections();
    let served = servers.into_iter().map(|server| tokio::spawn(serve(timer.clone(), server)));
    let served: Vec<_> = served.collect();
    let begun = Instant::now();
    while timer.wheel().len() < CLIENTS {
        tokio::task::yield_now().await;
    }
    let holds_its_thread = tokio::spawn(async move {
        // The thread that waits for events wakes this task.
        tokio::time::sleep(LIMIT / 10).await;
        for client in &mut clients {
            client.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
        }
        let in_time = begun.elapsed() < LIMIT / 2;
        thread::sleep(hold);
        (in_time, clients)
    });
    let (in_time, _clients) = holds_its_thread.await.unwrap();
    let mut given_up = 0;
    for connection in served {
        given_up += usize::from(!connection.await.unwrap());
    }
    in_time.then_some(given_up)
}

fn assert_that_bytes_win<F>(serve: impl Fn(Timer, TcpStream) -> F + Copy)
where
    F: Future<Output = bool> + Send + 'static,
{
    assert_that_bytes_win_within(2 * LIMIT, serve);
}

/// Asserts that the bytes win in some rounds, and that few connections are given up in the others.
/// A system that preempts a thread of the runtime between its events and its tasks delays it by
/// more than the timer allows for. That gives up one connection or another in a round, and without
/// an allowance a runtime of one thread gives up all of them.
fn assert_that_bytes_win_within<F>(hold: Duration, serve: impl Fn(Timer, TcpStream) -> F + Copy)
where
    F: Future<Output = bool> + Send + 'static,
{
    for runtime in runtimes() {
        let (mut won, mut given_up) = (0, 0);
        while won < ROUNDS {
            match runtime.block_on(round(hold, serve)) {
                Some(0) => won += 1,
                Some(more) => {
                    given_up += more;
                    let most = ROUNDS * CLIENTS;
                    assert!(given_up < most, "gave up {given_up}, {won} won, {runtime:?}");
                }
                None => {}
            }
        }
    }
}

#[test]
fn a_timeout_reads_what_came_in_time() {
    assert_that_bytes_win(|timer, mut stream| async move {
        let mut bytes = [0; 100];
        timer.timeout(LIMIT, stream.read(&mut bytes)).await.is_ok()
    });
}

#[test]
fn a_stream_of_items_yields_what_came_in_time() {
    assert_that_bytes_win(|timer, stream| async move {
        let reads = unfold(stream, async |mut stream| {
            let read = stream.read(&mut [0; 100]).await;
            Some((read, stream))
        });
        let mut items = pin!(timer.timeout_stream(LIMIT, reads));
        items.next().await.is_some_and(|item| item.is_ok())
    });
}

/// Held up for long, and for just longer than the limit. The wait of a task that is late by more
/// than a quarter of the limit restarts.
#[test]
fn a_limited_stream_reads_what_came_in_time() {
    for hold in [2 * LIMIT, LIMIT] {
        assert_that_bytes_win_within(hold, |timer, stream| async move {
            let mut stream = TimeoutStream::new(&timer, stream).with_read_timeout(LIMIT);
            stream.read(&mut [0; 100]).await.is_ok()
        });
    }
}

#[test]
fn a_stream_reads_what_came_before_its_deadline() {
    assert_that_bytes_win(|timer, stream| async move {
        let mut stream = TimeoutStream::new(&timer, stream).with_deadline(timer.now() + LIMIT);
        stream.read(&mut [0; 100]).await.is_ok()
    });
}

/// A stream or body that is always ready is polled a little longer, but not without end.
#[test]
fn a_peer_without_end_is_ended_though_bytes_win() {
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    for notices_late in [false, true] {
        let deadline = timer.now() + LIMIT / 10;
        let mut stream = TimeoutStream::new(&timer, tokio::io::repeat(0)).with_deadline(deadline);
        let body = TimeoutBody::new(Endless, &timer, 100 * LIMIT).with_total_timeout(LIMIT / 10);
        let mut body = pin!(body);
        if notices_late {
            thread::sleep(LIMIT / 5);
        }
        // Not on tokio, where the budget makes no future always ready.
        pollster::block_on(async {
            while stream.read_u8().await.is_ok() {
                assert!(timer.now() < deadline + 100 * LIMIT, "the stream goes on");
            }
            assert!(timer.now() >= deadline);
            while body.as_mut().frame().await.unwrap().is_ok() {
                assert!(timer.now() < deadline + 100 * LIMIT, "the body goes on");
            }
        });
    }
}

/// A clock that is moved by hand, but does not wake a driver when it is moved.
#[derive(Debug)]
struct Running(ManualClock);

impl Clock for Running {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// A timer whose tick thread is in a waker for as long as this lives.
struct HeldUp {
    clock: ManualClock,
    timer: Timer,
    _sleep: Sleep,
    _release: mpsc::Sender<()>,
}

/// A waker that holds up the thread that calls it.
struct Holds {
    entered: mpsc::Sender<()>,
    released: Mutex<mpsc::Receiver<()>>,
}

impl Wake for Holds {
    fn wake(self: Arc<Self>) {
        self.entered.send(()).unwrap();
        let _ = self.released.lock().unwrap().recv();
    }
}

impl HeldUp {
    fn new() -> Self {
        let clock = ManualClock::new();
        let driver = Builder::new().clock(Running(clock.clone())).driver();
        let timer = Timer::spawn(driver).unwrap();
        let (entered, inside) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let waker = Waker::from(Arc::new(Holds { entered, released: Mutex::new(released) }));
        let mut sleep = timer.sleep(MS);
        assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        clock.advance(2 * MS);
        inside.recv().unwrap();
        Self { clock, timer, _sleep: sleep, _release: release }
    }

    /// Creates a stream that has waited for its first byte, is always ready from then on, and is
    /// past its deadline.
    fn busy(&self) -> TimeoutStream<Busy> {
        let deadline = self.timer.now() + LIMIT;
        let mut stream = TimeoutStream::new(&self.timer, Busy(false)).with_deadline(deadline);
        assert!(read(&mut stream).is_pending());
        assert!(matches!(read(&mut stream), Poll::Ready(Ok(()))), "before the deadline");
        self.clock.advance(2 * LIMIT);
        stream
    }
}

/// A stream whose first read waits, and whose other reads are ready.
struct Busy(bool);

impl AsyncRead for Busy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

fn read(stream: &mut TimeoutStream<Busy>) -> Poll<io::Result<()>> {
    let mut buffer = ReadBuf::new(&mut []);
    Pin::new(stream).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer)
}

/// The runtime has polled its sockets a tick after the deadline, even if the driver does not run.
#[test]
fn a_busy_stream_does_not_wait_for_the_tick_thread_at_its_deadline() {
    let held_up = HeldUp::new();
    let mut stream = held_up.busy();
    let mut reads = 0;
    let error = loop {
        match read(&mut stream) {
            Poll::Ready(Err(error)) => break error,
            more => assert!(matches!(more, Poll::Ready(Ok(())))),
        }
        held_up.clock.advance(MS);
        reads += 1;
        assert!(reads < 10, "it waits for the tick thread");
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

/// The wheel of a forked child is closed, and there is no tick thread at all.
#[test]
fn a_busy_stream_ends_at_once_at_its_deadline_where_the_wheel_is_closed() {
    let held_up = HeldUp::new();
    let mut stream = held_up.busy();
    held_up.timer.wheel().close();
    let Poll::Ready(Err(error)) = read(&mut stream) else { panic!("it goes on") };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_busy_body_does_not_wait_for_the_tick_thread_at_its_limit() {
    let held_up = HeldUp::new();
    let body = TimeoutBody::new(Endless, &held_up.timer, 100 * LIMIT).with_total_timeout(LIMIT);
    let mut body = pin!(body);
    held_up.clock.advance(2 * LIMIT);
    let mut frames = 0;
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(_))) = body.as_mut().poll_frame(&mut context) {
        held_up.clock.advance(MS);
        frames += 1;
        assert!(frames < 10, "it waits for the tick thread");
    }
}

/// A body that always has a frame.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"drop")))))
    }
}

/// A body whose frames are the reads of a stream.
struct Reads(TcpStream);

impl Body for Reads {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut bytes = [0; 100];
        let mut buffer = ReadBuf::new(&mut bytes);
        ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer))?;
        Poll::Ready(Some(Ok(Frame::data(Bytes::copy_from_slice(buffer.filled())))))
    }
}

#[test]
fn a_limited_body_yields_a_frame_that_came_in_time() {
    assert_that_bytes_win(|timer, stream| async move {
        let mut body = TimeoutBody::new(Reads(stream), &timer, LIMIT);
        body.frame().await.is_some_and(|frame| frame.is_ok())
    });
}

#[test]
fn a_body_that_came_within_the_limit_for_the_whole_is_read() {
    assert_that_bytes_win(|timer, stream| async move {
        let body = TimeoutBody::new(Reads(stream), &timer, 100 * LIMIT);
        let mut body = body.with_total_timeout(LIMIT);
        body.frame().await.is_some_and(|frame| frame.is_ok())
    });
}

#[test]
fn hyper_answers_a_head_that_came_in_time() {
    async fn answer(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        Ok(Response::new(Full::new(Bytes::from_static(b"here"))))
    }
    assert_that_bytes_win(|timer, stream| async move {
        let mut builder = http1::Builder::new();
        builder.timer(timer).header_read_timeout(LIMIT);
        builder.serve_connection(TokioIo::new(stream), service_fn(answer)).await.is_ok()
    });
}
