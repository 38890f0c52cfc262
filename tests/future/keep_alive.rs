//! The keep-alive timeout of a byte stream, which pauses restart.

use crate::common::sandbox::{Sandbox, Task};
use crate::common::silent::Silent;
use futures_io::AsyncRead;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;
use tourbillon::io::{Limit, StreamError, TimeoutStream};

const MS: Duration = Duration::from_millis(1);

/// Polls a read, and returns the limit that has ended it.
fn poll_read(stream: &mut TimeoutStream<Silent>, task: &Task) -> Poll<Limit> {
    let mut read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut [0; 4]));
    task.poll(&mut read).map(|ended| match ended.unwrap_err().downcast::<StreamError>() {
        Ok(StreamError::Elapsed(limit)) => limit,
        other => panic!("{other:?}"),
    })
}

#[test]
fn the_end_of_a_pause_starts_the_limit_of_a_read_that_waits_without_one() {
    let mut sandbox = Sandbox::new();
    let (mut stream, task) = (TimeoutStream::new(&sandbox.timer, Silent), Task::new());
    let handle = stream.handle();
    handle.set_keep_alive_timeout(Some(MS * 60));
    let requests = [handle.pause(), handle.pause()];
    assert!(poll_read(&mut stream, &task).is_pending());
    assert_eq!((sandbox.armed(), sandbox.advance(MS * 100)), (0, 0), "a request is in progress");
    let [first, second] = requests;
    drop(first);
    assert_eq!(task.wakes(), 0, "another request is in progress");
    drop(second);
    assert_eq!(task.wakes(), 1);
    assert!(poll_read(&mut stream, &task).is_pending());
    sandbox.advance(MS * 59);
    assert_eq!(task.wakes(), 0);
    sandbox.advance(MS);
    assert_eq!((task.wakes(), poll_read(&mut stream, &task)), (1, Poll::Ready(Limit::KeepAlive)));
}

#[test]
fn a_pause_ends_the_limit_of_a_waiting_read() {
    let mut sandbox = Sandbox::new();
    let (mut stream, task) = (TimeoutStream::new(&sandbox.timer, Silent), Task::new());
    let handle = stream.handle();
    assert!(poll_read(&mut stream, &task).is_pending());
    handle.set_keep_alive_timeout(Some(MS * 60));
    assert_eq!(task.wakes(), 1);
    assert!(poll_read(&mut stream, &task).is_pending());
    let request = handle.pause();
    sandbox.advance(MS * 200);
    assert!(poll_read(&mut stream, &task).is_pending());
    handle.set_keep_alive_timeout(None);
    drop(request);
    sandbox.advance(MS * 200);
    assert!(poll_read(&mut stream, &task).is_pending());
}

#[test]
fn the_earlier_of_deadline_and_keep_alive_timeout_ends_a_read() {
    for (deadline, limit) in [(50, Limit::Deadline), (70, Limit::KeepAlive)] {
        let mut sandbox = Sandbox::new();
        let (mut stream, task) = (TimeoutStream::new(&sandbox.timer, Silent), Task::new());
        stream.set_deadline(Some(sandbox.clock.start() + MS * deadline));
        stream.handle().set_keep_alive_timeout(Some(MS * 60));
        assert!(poll_read(&mut stream, &task).is_pending());
        sandbox.advance(MS * 60);
        assert_eq!(poll_read(&mut stream, &task), Poll::Ready(limit));
    }
}
