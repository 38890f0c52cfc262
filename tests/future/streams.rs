//! Timed streams, in virtual time.

use crate::common::sandbox::{Sandbox, Task};
use futures_core::Stream;
use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::future::TimeoutError;
use tourbillon::{Builder, Refusal};

const MS: Duration = Duration::from_millis(1);

/// A stream of the items that it was given.
#[derive(Default)]
struct Source {
    items: VecDeque<u32>,
    ended: bool,
    polls: u32,
}

impl Source {
    fn of(items: impl IntoIterator<Item = u32>) -> Self {
        Self { items: items.into_iter().collect(), ended: false, polls: 0 }
    }
}

impl Stream for &mut Source {
    type Item = u32;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<u32>> {
        self.polls += 1;
        match self.items.pop_front() {
            None if !self.ended => Poll::Pending,
            item => Poll::Ready(item),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.items.len(), Some(self.items.len()))
    }
}

fn next<S: Stream + Unpin>(task: &Task, stream: &mut S) -> Poll<Option<S::Item>> {
    Pin::new(stream).poll_next(&mut task.context())
}

#[test]
fn a_silence_is_an_error_each_time_and_items_go_on() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let silent = Poll::Ready(Some(Err(TimeoutError::Elapsed)));
    let mut source = Source::of([1]);
    let mut stream = sandbox.timer.timeout_stream(MS * 10, &mut source);
    assert_eq!(stream.size_hint(), (1, None));
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(1))));
    assert_eq!(sandbox.inserted(), 0, "what is there needs no timer");
    sandbox.advance(MS * 100);
    assert!(next(&task, &mut stream).is_pending(), "it counts from a poll");
    for _ in 0..2 {
        sandbox.advance(MS * 9);
        assert!(next(&task, &mut stream).is_pending());
        assert_eq!((sandbox.advance(MS), task.wakes() > 0), (1, true));
        assert_eq!(next(&task, &mut stream), silent);
        assert!(next(&task, &mut stream).is_pending());
    }
    drop(stream);
    source.items.push_back(2);
    source.ended = true;
    let mut stream = sandbox.timer.timeout_stream(MS * 10, &mut source);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(2))));
    assert_eq!(next(&task, &mut stream), Poll::Ready(None));
    drop(stream);
    assert_eq!(sandbox.armed(), 0);
}

#[test]
fn a_timer_that_was_shut_down_says_so_and_items_go_on() {
    let (sandbox, task) = (Sandbox::new(), Task::new());
    let mut source = Source::default();
    let mut stream = sandbox.timer.timeout_stream(MS * 10, &mut source);
    sandbox.timer.shutdown();
    assert!(next(&task, &mut stream).is_pending(), "others have their turn");
    let refused = Poll::Ready(Some(Err(TimeoutError::Refused(Refusal::Closed))));
    assert_eq!(next(&task, &mut stream), refused);
    let _others_had_their_turn = task.wakes();
    for _ in 0..3 {
        assert!(next(&task, &mut stream).is_pending(), "a loop that ignores it does not spin");
        assert_eq!(task.wakes(), 0);
    }
    drop(stream);
    source.items.push_back(1);
    let mut stream = sandbox.timer.timeout_stream(MS * 10, &mut source);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(1))));
    let mut source = Source::of([1, 2]);
    let mut stream = sandbox.timer.throttle(MS * 10, &mut source);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(1))));
    assert!(next(&task, &mut stream).is_pending(), "others have their turn");
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Err(Refusal::Closed))));
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(2))), "nothing is lost");
    let mut source = Source::of([1, 2]);
    let most = NonZeroUsize::new(9).unwrap();
    let mut stream = sandbox.timer.chunks_timeout(most, MS * 10, &mut source);
    assert!(next(&task, &mut stream).is_pending(), "others have their turn");
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(vec![1, 2])));
}

#[test]
fn a_timer_that_is_full_says_so_once_and_silence_counts() {
    let (mut sandbox, task) = (Sandbox::of(Builder::new().capacity(1)), Task::new());
    let mut place = sandbox.timer.sleep(MS * 1000);
    assert!(task.poll(&mut place).is_pending());
    let mut source = Source::default();
    let mut stream = sandbox.timer.timeout_stream(MS * 10, &mut source);
    assert!(next(&task, &mut stream).is_pending(), "others have their turn");
    let full = TimeoutError::Refused(Refusal::AtCapacity { capacity: 1 });
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Err(full))));
    for _ in 0..3 {
        let _others_had_their_turn = task.wakes();
        assert!(next(&task, &mut stream).is_pending());
        assert_eq!((task.wakes(), sandbox.armed()), (0, 2));
        assert_eq!(sandbox.advance(MS * 10), 1);
        assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Err(TimeoutError::Elapsed))));
    }
}

#[test]
fn a_throttled_stream_is_polled_no_earlier_than_its_item_may_come() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let mut source = Source::of([1, 2, 3]);
    let mut stream = sandbox.timer.throttle(MS * 10, &mut source);
    assert_eq!(stream.size_hint(), (3, None));
    for item in 1..=3 {
        assert_eq!(next(&task, &mut stream), Poll::Ready(Some(Ok(item))));
        assert!(next(&task, &mut stream).is_pending());
        sandbox.advance(MS * 9);
        assert!(next(&task, &mut stream).is_pending());
        assert_eq!(sandbox.advance(MS), 1);
    }
    assert!(next(&task, &mut stream).is_pending());
    drop(stream);
    assert_eq!((source.polls, sandbox.armed()), (4, 0));
    source.ended = true;
    let mut stream = sandbox.timer.throttle(MS * 10, &mut source);
    assert_eq!(next(&task, &mut stream), Poll::Ready(None));
}

#[test]
fn portions_are_full_or_in_time() {
    let (mut sandbox, task) = (Sandbox::new(), Task::new());
    let most = NonZeroUsize::new(3).unwrap();
    let mut source = Source::of(0..5);
    let mut stream = sandbox.timer.chunks_timeout(most, MS * 10, &mut source);
    sandbox.advance(MS * 5);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(vec![0, 1, 2])));
    assert!(next(&task, &mut stream).is_pending());
    sandbox.advance(MS * 9);
    assert!(next(&task, &mut stream).is_pending());
    assert_eq!(sandbox.advance(MS), 1);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(vec![3, 4])));
    sandbox.advance(MS * 100);
    assert!(next(&task, &mut stream).is_pending(), "an empty portion waits for its first item");
    drop(stream);
    let mut source = Source { ended: true, ..Source::of(0..4) };
    let mut stream = sandbox.timer.chunks_timeout(most, MS * 10, &mut source);
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(vec![0, 1, 2])));
    assert_eq!(next(&task, &mut stream), Poll::Ready(Some(vec![3])), "the rest");
    assert_eq!(next(&task, &mut stream), Poll::Ready(None));
    assert_eq!(next(&task, &mut stream), Poll::Ready(None));
    drop(stream);
    assert_eq!(sandbox.armed(), 0);
}
