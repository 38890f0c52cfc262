//! The rows of `docs/COMING-FROM.md` for moka, Netty's `IdleStateHandler`, tokio-stream,
//! futures-timer and async-io.

use crate::common::sandbox::{Sandbox, Task};
use crate::rig::{Rig, TICK, TTL};
use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};
use std::future::poll_fn;
use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::cache::{CacheRefusal, Cause, LoadError};
use tourbillon::future::{self, TimeoutError};
use tourbillon::io::{Limit, StreamError, TimeoutStream};

const MS: Duration = Duration::from_millis(1);

// moka's Cache

#[test]
fn moka_time_to_live() {
    let mut rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)], "without a call");
}

#[test]
fn moka_time_to_idle() {
    let mut rig = Rig::new(|builder| builder.time_to_idle(TICK * 30));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK * 29);
    assert_eq!(rig.cache.get(&1), Some(10));
    rig.advance(TICK * 30);
    assert_eq!(rig.told(), [(1, 10, Cause::Expired)]);
}

#[test]
fn moka_expire_after() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert_with_ttl(1, 10, TTL * 2).unwrap();
    let start = rig.clock.start();
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 2));
    assert_eq!(rig.cache.touch(&1, TTL * 3), Ok(true));
    assert_eq!(rig.cache.deadline(&1), Some(start + TTL * 3));
}

#[test]
fn moka_max_capacity() {
    let rig = Rig::new(|builder| builder.capacity(1000).weigher(|_, value| *value));
    for key in 0..1000 {
        rig.cache.insert(key, 5).unwrap();
        assert!(rig.cache.len() * 5 <= 1000);
    }
}

#[test]
fn moka_get_with() {
    let rig = Rig::new(|builder| builder);
    assert_eq!(rig.cache.get_or_insert_with(&1, || 10), 10);
    assert_eq!(rig.cache.get_or_insert_with(&1, || panic!("it has one")), 10);
    let overtaken = rig.cache.get_or_insert_with(&2, || {
        rig.cache.insert(2, 21).unwrap();
        20
    });
    assert_eq!((overtaken, rig.cache.get(&2)), (20, Some(21)));
}

#[test]
fn moka_try_get_with() {
    let rig = Rig::new(|builder| builder);
    let down = rig.cache.get_or_load(&1, || Err("down"));
    assert_eq!(down, Err(LoadError::Failed(Arc::new("down"))));
    let loaded = rig.cache.get_or_load(&1, || {
        rig.cache.insert(1, 11).unwrap();
        Ok::<_, ()>(10)
    });
    assert_eq!((loaded, rig.cache.get(&1)), (Ok(10), Some(11)));
}

#[test]
fn moka_future_try_get_with() {
    let rig = Rig::new(|builder| builder);
    let load = async { Ok::<_, ()>((10, TTL * 2)) };
    assert_eq!(pollster::block_on(rig.cache.get_or_load_async(&1, load)), Ok(10));
    assert_eq!(rig.cache.deadline(&1), Some(rig.clock.start() + TTL * 2));
}

#[test]
fn moka_get_with_in_a_task() {
    let rig = Rig::new(|builder| builder);
    let load = || {
        let mut polled = false;
        poll_fn(move |context| {
            context.waker().wake_by_ref();
            let ready = std::mem::replace(&mut polled, true);
            if ready { Poll::Ready(Ok::<_, ()>(10)) } else { Poll::Pending }
        })
    };
    let mut gives_up = Box::pin(rig.cache.get_or_load_shared(&1, load()));
    assert!(gives_up.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(gives_up);
    let goes_on = rig.cache.get_or_load_shared(&1, load());
    assert_eq!(pollster::block_on(goes_on), Ok(10));
    assert_eq!((rig.cache.get(&1), rig.cache.stats().loads), (Some(10), 1));
}

#[test]
fn moka_entry_or_insert() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert_if_absent(1, 10).unwrap();
    let refused = rig.cache.insert_if_absent(1, 11).unwrap_err();
    assert_eq!((refused.reason, refused.value), (CacheRefusal::Present, 11));
    assert_eq!(rig.cache.get(&1), Some(10));
}

#[test]
fn moka_invalidate() {
    let rig = Rig::new(|builder| builder);
    rig.cache.insert(1, 10).unwrap();
    assert_eq!(rig.cache.remove(&1), Some(10));
}

#[test]
fn moka_invalidate_all() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, 0).unwrap());
    rig.cache.clear();
    assert!(rig.cache.is_empty());
}

#[test]
fn moka_invalidate_entries_if() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, 0).unwrap());
    rig.cache.retain(|key, _| *key < 3);
    assert_eq!((rig.cache.len(), rig.told().len()), (3, 6));
}

#[test]
fn moka_iter() {
    let rig = Rig::new(|builder| builder);
    (0..9).for_each(|key| rig.cache.insert(key, u64::from(key)).unwrap());
    assert_eq!(rig.cache.iter().map(|(_, value)| value).sum::<u64>(), 36);
    assert_eq!((&rig.cache).into_iter().count(), 9);
}

#[test]
fn caffeine_refresh_after_write() {
    let mut rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL / 2);
    assert_eq!(rig.cache.get_or_load(&1, || Err("down")), Ok(10));
    assert_eq!(rig.cache.get_or_load(&1, || -> Result<_, &str> { panic!("a pause") }), Ok(10));
    rig.advance(TICK * 5);
    assert_eq!(rig.cache.get_or_load(&1, || Ok::<_, &str>(11)), Ok(11));
    rig.advance(TTL / 2);
    let refresh = rig.cache.refresh_ahead(&1).unwrap();
    assert_eq!(refresh.load(|| Ok::<_, &str>((12, TTL))), Ok(12));
}

#[test]
fn moka_run_pending_tasks() {
    let rig = Rig::new(|builder| builder.capacity(64));
    for key in 0..1000 {
        rig.cache.insert(key, 0).unwrap();
        assert_eq!(rig.cache.len(), rig.cache.iter().count());
    }
}

// Netty's IdleStateHandler

/// A peer that sends nothing and takes nothing.
struct Silent;

impl AsyncRead for Silent {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
}

impl AsyncWrite for Silent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

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
    pollster::block_on(future::sleep(MS * 2)).unwrap();
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
    pollster::block_on(future::sleep_until(deadline)).unwrap();
    assert!(future::default_timer().now() >= deadline);
}

#[test]
fn async_io_timer_interval() {
    let mut ticks = future::interval(MS * 2).unwrap();
    let first = pollster::block_on(ticks.tick()).unwrap();
    let second = pollster::block_on(ticks.tick()).unwrap();
    assert_eq!(second - first, MS * 2);
}
