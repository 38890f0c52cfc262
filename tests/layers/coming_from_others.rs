//! The rows of `docs/COMING-FROM.md` for Netty's `IdleStateHandler`, tokio-stream, futures-timer
//! and async-io.

use crate::common::sandbox::{Sandbox, Task};
use crate::common::silent::Silent;
use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tourbillon::future::{self, TimeoutError};
use tourbillon::io::{Limit, StreamError, TimeoutStream};

const MS: Duration = Duration::from_millis(1);

// Netty's IdleStateHandler

/// Returns the limit that ends an operation on a silent peer after 30 ms.
fn ends(
    set: impl FnOnce(&mut TimeoutStream<Silent>),
    mut poll: impl FnMut(Pin<&mut TimeoutStream<Silent>>, &mut Context<'_>) -> Poll<io::Result<usize>>,
) -> StreamError {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut stream = TimeoutStream::new(&sandbox.timer, Silent);
    set(&mut stream);
    assert!(poll(Pin::new(&mut stream), &mut task.context()).is_pending());
    sandbox.advance(MS * 29);
    assert!(poll(Pin::new(&mut stream), &mut task.context()).is_pending());
    assert_eq!((sandbox.advance(MS), task.wakes()), (1, 1));
    let Poll::Ready(ended) = poll(Pin::new(&mut stream), &mut task.context()) else { panic!() };
    ended.unwrap_err().downcast().unwrap()
}

fn read(stream: Pin<&mut TimeoutStream<Silent>>, to: &mut Context<'_>) -> Poll<io::Result<usize>> {
    stream.poll_read(to, &mut [0])
}

#[test]
fn netty_reader_idle_time() {
    let set = |stream: &mut TimeoutStream<Silent>| {
        stream.set_read_timeout(Some(MS * 30));
        stream.set_writes_restart_reads(false);
    };
    let ended = ends(set, read);
    assert_eq!(ended, StreamError::Elapsed(Limit::Read));
}

#[test]
fn netty_writer_idle_time() {
    let write = |stream: Pin<&mut TimeoutStream<Silent>>, context: &mut Context<'_>| {
        stream.poll_write(context, &[0])
    };
    let ended = ends(|stream| stream.set_write_timeout(Some(MS * 30)), write);
    assert_eq!(ended, StreamError::Elapsed(Limit::Write));
}

#[test]
fn netty_all_idle_time() {
    let ended = ends(|stream| stream.set_idle_timeout(Some(MS * 30)), read);
    assert_eq!(ended, StreamError::Elapsed(Limit::Idle));
}

// tokio-stream

/// The next tick of an interval, on a stream made of it.
fn next<S: Stream + Unpin>(task: &Task, stream: &mut S) -> Poll<Option<S::Item>> {
    Pin::new(stream).poll_next(&mut task.context())
}

#[test]
fn tokio_stream_timeout() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let ticks = sandbox.timer.interval(MS * 25).unwrap();
    let mut ticks = sandbox.timer.timeout_stream(MS * 10, ticks);
    assert!(matches!(next(&task, &mut ticks), Poll::Ready(Some(Ok(_)))));
    for _ in 0..2 {
        assert!(next(&task, &mut ticks).is_pending());
        sandbox.advance(MS * 10);
        let silent = next(&task, &mut ticks);
        assert!(matches!(silent, Poll::Ready(Some(Err(TimeoutError::Elapsed)))));
    }
    assert!(next(&task, &mut ticks).is_pending());
    sandbox.advance(MS * 5);
    assert!(matches!(next(&task, &mut ticks), Poll::Ready(Some(Ok(_)))));
}

#[test]
fn tokio_stream_throttle() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let ticks = sandbox.timer.interval(MS).unwrap();
    let mut slow = sandbox.timer.throttle(MS * 10, ticks);
    assert!(matches!(next(&task, &mut slow), Poll::Ready(Some(Ok(_)))));
    sandbox.advance(MS * 9);
    assert!(next(&task, &mut slow).is_pending());
    sandbox.advance(MS);
    assert!(matches!(next(&task, &mut slow), Poll::Ready(Some(Ok(_)))));
}

#[test]
fn tokio_stream_chunks_timeout() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let ticks = sandbox.timer.interval(MS * 4).unwrap();
    let most = NonZeroUsize::new(2).unwrap();
    let mut portions = sandbox.timer.chunks_timeout(most, MS * 6, ticks);
    assert!(next(&task, &mut portions).is_pending());
    sandbox.advance(MS * 4);
    let portion = next(&task, &mut portions).map(|portion| portion.map(|ticks| ticks.len()));
    assert_eq!(portion, Poll::Ready(Some(2)));
}

// futures-timer and async-io

#[test]
fn futures_timer_delay_new() {
    let start = future::default_timer().now();
    pollster::block_on(future::default_timer().sleep(MS * 2)).unwrap();
    assert!(future::default_timer().now() - start >= MS * 2);
}

#[test]
fn futures_timer_delay_reset() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut delay = sandbox.timer.sleep(MS * 2);
    assert!(task.poll(&mut delay).is_pending());
    delay.reset_after(MS * 20);
    sandbox.advance(MS * 19);
    assert!(task.poll(&mut delay).is_pending());
    sandbox.advance(MS);
    assert_eq!(task.poll(&mut delay), Poll::Ready(Ok(())));
}

#[test]
fn async_io_timer_at() {
    let deadline: Instant = future::default_timer().now() + MS * 2;
    pollster::block_on(future::default_timer().sleep_until(deadline)).unwrap();
    assert!(future::default_timer().now() >= deadline);
}

#[test]
fn async_io_timer_interval() {
    let mut ticks = future::default_timer().interval(MS * 2).unwrap();
    let first = pollster::block_on(ticks.tick()).unwrap();
    let second = pollster::block_on(ticks.tick()).unwrap();
    assert_eq!(second - first, MS * 2);
}
