//! Tasks that wait for the result of a closure.

use crate::common::desk::Desk;
use crate::common::woken::Woken;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::scheduler::{Cancel, JoinError, JoinFuture};

const SECOND: Duration = Duration::from_secs(1);

/// Polls as a task that counts how often it is woken.
fn poll<R>(future: &mut JoinFuture<R>, woken: &Arc<Woken>) -> Poll<Result<R, JoinError>> {
    let waker = Waker::from(Arc::clone(woken));
    Pin::new(future).poll(&mut Context::from_waker(&waker))
}

#[test]
fn a_task_is_woken_when_the_closure_has_run() {
    let mut desk = Desk::new();
    let mut future = desk.scheduler.after(SECOND, || 42).unwrap().into_future();
    let [first, last] = [(), ()].map(|()| Arc::<Woken>::default());
    assert!(poll(&mut future, &first).is_pending());
    assert!(poll(&mut future, &last).is_pending());
    desk.advance(SECOND / 2);
    assert_eq!((first.times(), last.times()), (0, 0));
    desk.advance(SECOND / 2);
    assert_eq!((first.times(), last.times()), (0, 1), "the last waker counts");
    assert!(matches!(poll(&mut future, &last), Poll::Ready(Ok(42))));
    assert!(matches!(poll(&mut future, &last), Poll::Ready(Err(JoinError::NotRun))), "once");
    assert_eq!(Arc::strong_count(&first), 1, "no reference is left");
}

#[test]
fn a_task_learns_that_no_result_comes() {
    let mut desk = Desk::new();
    let woken = Arc::<Woken>::default();
    let panics = desk.scheduler.after(SECOND, || panic!("on purpose")).unwrap();
    let cancelled = desk.scheduler.after(SECOND * 2, || ()).unwrap();
    let dropped = desk.scheduler.after(SECOND * 2, || ()).unwrap();
    let handle = cancelled.scheduled().clone();
    let [mut panics, mut cancelled, mut dropped] =
        [panics, cancelled, dropped].map(IntoFuture::into_future);
    for future in [&mut panics, &mut cancelled, &mut dropped] {
        assert!(poll(future, &woken).is_pending());
    }
    desk.advance(SECOND);
    assert_eq!(woken.times(), 1);
    let Poll::Ready(Err(JoinError::Panicked(payload))) = poll(&mut panics, &woken) else {
        panic!("it panicked")
    };
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    assert_eq!(handle.cancel(), Cancel::Prevented);
    assert_eq!(woken.times(), 2);
    assert!(matches!(poll(&mut cancelled, &woken), Poll::Ready(Err(JoinError::NotRun))));
    drop(desk.scheduler.shutdown());
    assert_eq!(woken.times(), 3);
    assert!(matches!(poll(&mut dropped, &woken), Poll::Ready(Err(JoinError::NotRun))));
}

#[test]
fn a_task_does_not_keep_the_wheel_that_it_waits_for() {
    let desk = Desk::new();
    let woken = Arc::<Woken>::default();
    let mut future = desk.scheduler.after(SECOND, || ()).unwrap().into_future();
    assert!(poll(&mut future, &woken).is_pending());
    drop(desk);
    assert_eq!(woken.times(), 1);
    assert!(matches!(poll(&mut future, &woken), Poll::Ready(Err(JoinError::NotRun))));
}

#[test]
fn a_result_that_is_there_needs_no_waker() {
    let mut desk = Desk::new();
    let ran = desk.scheduler.after(SECOND, || 42).unwrap();
    desk.advance(SECOND);
    assert!(matches!(pollster::block_on(ran.into_future()), Ok(42)));
}

#[test]
fn a_task_that_gave_up_leaves_no_waker() {
    let mut desk = Desk::new();
    let woken = Arc::<Woken>::default();
    let mut future = desk.scheduler.after(SECOND, || 42).unwrap().into_future();
    assert!(poll(&mut future, &woken).is_pending());
    drop(future);
    desk.advance(SECOND);
    assert_eq!((woken.times(), Arc::strong_count(&woken)), (0, 1));
}
