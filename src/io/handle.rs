//! [`StreamHandle`]: access to the limits of a stream that other code owns.

#![forbid(unsafe_code)]

use super::settings::{Direction, Settings};
use crate::future::Timer;
use crate::panics::ignore_poison;
use crate::sync::{Mutex, MutexGuard};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The state that a stream shares with its handles.
///
/// The settings and the wakers of waiting tasks are behind the same lock. A waiting task reads the
/// settings and stores its waker under one acquisition of the lock, so it either reads a change or
/// is woken by it.
#[derive(Debug)]
pub(super) struct StreamShared {
    timer: Timer,
    state: Mutex<StreamState>,
}

#[derive(Debug)]
struct StreamState {
    settings: Settings,
    /// The tasks that wait to read and to write.
    waiting: [Option<Waker>; 2],
}

impl StreamShared {
    fn lock(&self) -> MutexGuard<'_, StreamState> {
        ignore_poison(self.state.lock())
    }

    pub(super) fn settings(&self) -> Settings {
        self.lock().settings
    }

    /// Returns the settings and registers the task to be woken when they change.
    pub(super) fn settings_for(&self, direction: Direction, task: &Waker) -> Settings {
        let mut state = self.lock();
        let replaced = store_waker(&mut state.waiting[direction as usize], task);
        let settings = state.settings;
        drop(state);
        drop(replaced);
        settings
    }

    /// Changes the settings without waking a task, and returns them.
    pub(super) fn set(&self, change: impl FnOnce(&mut Settings)) -> Settings {
        let mut state = self.lock();
        change(&mut state.settings);
        state.settings
    }

    fn wake_tasks(&self) {
        self.take_tasks().into_iter().flatten().for_each(Waker::wake);
    }

    /// Removes the wakers of the waiting tasks. The caller must drop them after the lock is
    /// released, because dropping a waker runs foreign code.
    pub(super) fn take_tasks(&self) -> [Option<Waker>; 2] {
        std::mem::take(&mut self.lock().waiting)
    }
}

/// Stores a task's waker under a lock. Returns the previous waker, which the caller must drop after
/// the lock is released.
pub(super) fn store_waker(place: &mut Option<Waker>, task: &Waker) -> Option<Waker> {
    match place {
        Some(known) if known.will_wake(task) => None,
        _ => place.replace(task.clone()),
    }
}

/// A handle to the limits of a [`TimeoutStream`](super::TimeoutStream) that other code owns, such
/// as a server's connection.
///
/// It is created by [`TimeoutStream::handle`](super::TimeoutStream::handle). Clones refer to the
/// same stream. A handle keeps the stream's timer alive, but not the stream. After the stream is
/// dropped, calls have no effect. Each method takes a lock for a few instructions.
///
/// # Examples
///
/// A request that takes longer than the idle timeout, in virtual time (the
/// [module](super#under-hyper) has an example with hyper):
///
/// ```
/// # use futures_io::AsyncRead;
/// # use std::io;
/// # use std::pin::Pin;
/// # use std::task::{Context, Poll};
/// use std::future::poll_fn;
/// use std::time::Duration;
/// use tourbillon::io::TimeoutStream;
/// use tourbillon::testing::block_on;
///
/// # struct Silent;
/// #
/// # impl AsyncRead for Silent {
/// #     fn poll_read(
/// #         self: Pin<&mut Self>,
/// #         _: &mut Context<'_>,
/// #         _: &mut [u8],
/// #     ) -> Poll<io::Result<usize>> {
/// #         Poll::Pending
/// #     }
/// # }
/// let second = Duration::from_secs(1);
/// block_on(|timer| async move {
///     let mut connection = TimeoutStream::new(&timer, Silent).with_idle_timeout(second * 30);
///     let (handle, start) = (connection.handle(), timer.now());
///     let mut buffer = [0; 16];
///     let mut read =
///         poll_fn(|context| Pin::new(&mut connection).poll_read(context, &mut buffer));
///
///     let paused = handle.pause(); // a request is being worked on
///     assert!(timer.timeout(second * 90, &mut read).await.is_err(), "still connected");
///     drop(paused); // and is answered
///     assert_eq!(read.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
///     assert_eq!(timer.now() - start, second * 120);
/// });
/// ```
#[derive(Clone, Debug)]
pub struct StreamHandle {
    shared: Arc<StreamShared>,
}

impl StreamHandle {
    pub(super) fn new(timer: Timer, settings: Settings) -> Self {
        let state = Mutex::new(StreamState { settings, waiting: [None, None] });
        Self { shared: Arc::new(StreamShared { timer, state }) }
    }

    pub(super) fn shared(&self) -> &Arc<StreamShared> {
        &self.shared
    }

    /// Suspends the limits for reads and for silence until the returned guard and all other guards
    /// of the stream are dropped.
    ///
    /// Both limits restart when the last guard is dropped. The limit for writes and the deadline
    /// also count during a pause, so a client that does not read its response is disconnected.
    /// The start of a pause wakes no task, and the end of the last one wakes a waiting task only if
    /// there is a [keep-alive timeout](Self::set_keep_alive_timeout). A stream that waits during a
    /// pause wakes its task once per limit.
    pub fn pause(&self) -> StreamPause {
        let _settings = self.shared.set(Settings::pause);
        StreamPause { shared: Arc::clone(&self.shared) }
    }

    /// Sets how long a read may wait for the peer, like
    /// [`TimeoutStream::set_read_timeout`](super::TimeoutStream::set_read_timeout).
    ///
    /// A waiting task is woken, and its wait restarts. This applies to each setter of the handle.
    pub fn set_read_timeout(&self, limit: Option<Duration>) {
        self.change(|settings| settings.read.set(limit));
    }

    /// Sets how long a write, flush or shutdown may wait for the peer, like
    /// [`TimeoutStream::set_write_timeout`](super::TimeoutStream::set_write_timeout).
    pub fn set_write_timeout(&self, limit: Option<Duration>) {
        self.change(|settings| settings.write.set(limit));
    }

    /// Sets how long there may be silence in both directions, like
    /// [`TimeoutStream::set_idle_timeout`](super::TimeoutStream::set_idle_timeout).
    pub fn set_idle_timeout(&self, limit: Option<Duration>) {
        self.change(|settings| settings.idle.set(limit));
    }

    /// Sets how long the stream may go without a [pause](Self::pause), whatever bytes move. `None`
    /// removes the limit.
    ///
    /// A server that pauses the limits during each request sets with it how long a connection may
    /// be kept without a request. Use it for HTTP/2, where a client that sends nothing but pings is
    /// never silent. The limit starts now and at the end of the last pause. When it passes, all
    /// operations fail, as after a [deadline](super::TimeoutStream::set_deadline).
    ///
    /// # Examples
    ///
    /// A client that sends a ping every ten seconds, and whose only request takes 90 seconds:
    ///
    /// ```
    /// # use futures_io::AsyncRead;
    /// # use std::io;
    /// # use std::pin::Pin;
    /// # use std::task::{Context, Poll};
    /// use std::future::poll_fn;
    /// use std::time::Duration;
    /// use tourbillon::io::{Limit, StreamError, TimeoutStream};
    /// use tourbillon::testing::block_on;
    ///
    /// # struct Pings;
    /// #
    /// # impl AsyncRead for Pings {
    /// #     fn poll_read(
    /// #         self: Pin<&mut Self>,
    /// #         _: &mut Context<'_>,
    /// #         _: &mut [u8],
    /// #     ) -> Poll<io::Result<usize>> {
    /// #         Poll::Ready(Ok(1))
    /// #     }
    /// # }
    /// let second = Duration::from_secs(1);
    /// block_on(|timer| async move {
    ///     let mut connection = TimeoutStream::new(&timer, Pings).with_idle_timeout(second * 30);
    ///     let (handle, start) = (connection.handle(), timer.now());
    ///     handle.set_keep_alive_timeout(Some(second * 60));
    ///
    ///     let mut request = Some(handle.pause());
    ///     let mut buffer = [0; 16];
    ///     let ended = loop {
    ///         timer.sleep(second * 10).await.unwrap();
    ///         if timer.now() - start == second * 90 {
    ///             request = None; // it is answered
    ///         }
    ///         let read =
    ///             poll_fn(|context| Pin::new(&mut connection).poll_read(context, &mut buffer));
    ///         if let Err(ended) = read.await {
    ///             break ended;
    ///         }
    ///     };
    ///     assert_eq!(timer.now() - start, second * 150);
    ///     assert!(request.is_none());
    ///     let reason = ended.downcast::<StreamError>().ok();
    ///     assert_eq!(reason, Some(StreamError::Elapsed(Limit::KeepAlive)));
    /// });
    /// ```
    pub fn set_keep_alive_timeout(&self, limit: Option<Duration>) {
        self.change(|settings| settings.set_keep_alive(limit, self.shared.timer.wheel()));
    }

    /// Sets the deadline of all operations, like
    /// [`TimeoutStream::set_deadline`](super::TimeoutStream::set_deadline).
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        let deadline = deadline.map(|at| self.shared.timer.wheel().wheel_instant(at));
        self.change(|settings| settings.deadline = deadline);
    }

    /// Changes the settings and wakes the waiting tasks.
    fn change(&self, change: impl FnOnce(&mut Settings)) {
        let _settings = self.shared.set(change);
        self.shared.wake_tasks();
    }
}

/// A guard that suspends the limits for reads and for silence until it is dropped.
///
/// It is created by [`StreamHandle::pause`].
#[derive(Debug)]
#[must_use = "the pause ends when the guard is dropped"]
pub struct StreamPause {
    shared: Arc<StreamShared>,
}

impl Drop for StreamPause {
    fn drop(&mut self) {
        let wheel = self.shared.timer.wheel();
        let now = wheel.clock().now() + wheel.clock().lag();
        let mut wakes = false;
        let _settings = self.shared.set(|settings| wakes = settings.resume(now, wheel));
        if wakes {
            self.shared.wake_tasks();
        }
    }
}
