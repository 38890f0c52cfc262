//! [`TimeoutStream`]: a byte stream whose peer has limits, and its `futures-io` face.

#![forbid(unsafe_code)]

use super::error::{Limit, StreamError};
use super::handle::StreamHandle;
use super::settings::Direction;
use super::waits::{Operation, Waits};
use crate::future::Timer;
use futures_io::{AsyncRead, AsyncWrite};
use pin_project_lite::pin_project;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pin_project! {
    /// A byte stream that gives up when its peer takes too long; without limits until they are set.
    ///
    /// It implements those of `AsyncRead` and `AsyncWrite` that `S` implements, of `futures-io`
    /// and, with the feature `tokio`, of tokio. It is `Unpin` if `S` is. An operation that is ready
    /// at once never fails with a timeout, except after the [deadline](Self::set_deadline). Like a
    /// [`Timeout`](crate::future::Timeout), a stream on a timer with a driver polls `S` once more,
    /// about a tick after a limit has passed, before it reports the timeout. Bytes that the system
    /// received in time are therefore read even if another task blocked the runtime's thread. An
    /// operation that timed out has moved no bytes and may be tried again, with a new wait.
    ///
    /// # Errors
    ///
    /// Those of `S`; one of kind [`TimedOut`](io::ErrorKind::TimedOut) where a limit has passed,
    /// and of kind [`Other`](io::ErrorKind::Other) where an operation would have to wait and the
    /// timer was shut down, or is full. Both hold a [`StreamError`].
    ///
    /// # Examples
    ///
    /// A connection that may be silent for five seconds, and take a minute for each message
    /// (with `tokio`, so is its `TcpStream`):
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::io::TimeoutStream;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// # struct TcpStream;
    /// # let accepted = TcpStream;
    /// let idle = Duration::from_secs(5);
    /// let mut stream = TimeoutStream::new(&timer, accepted).with_idle_timeout(idle);
    ///
    /// stream.set_deadline(Some(timer.now() + Duration::from_secs(60))); // a message begins
    /// stream.set_deadline(None); // and has ended
    /// let TcpStream = stream.into_inner();
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[derive(Debug)]
    pub struct TimeoutStream<S> {
        #[pin]
        stream: S,
        waits: Waits,
    }
}

impl<S> TimeoutStream<S> {
    /// A stream without limits, which are kept by `timer`: pass a clone for each connection, or for
    /// each thread, so that they share no counter.
    pub fn new(timer: &Timer, stream: S) -> Self {
        Self { stream, waits: Waits::new(timer.share()) }
    }

    /// Limits how long a read may wait for its peer, as
    /// [`set_read_timeout`](Self::set_read_timeout) does.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::io::TimeoutStream;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// # let accepted = std::io::empty();
    /// let stream = TimeoutStream::new(&timer, accepted)
    ///     .with_read_timeout(Duration::from_secs(30))
    ///     .with_write_timeout(Duration::from_secs(10))
    ///     .with_idle_timeout(Duration::from_secs(60))
    ///     .with_deadline(Instant::now() + Duration::from_secs(300));
    /// assert_eq!(stream.write_timeout(), Some(Duration::from_secs(10)));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn with_read_timeout(mut self, limit: Duration) -> Self {
        self.set_read_timeout(Some(limit));
        self
    }

    /// Limits how long a write, flush or shutdown may wait for its peer, as
    /// [`set_write_timeout`](Self::set_write_timeout) does.
    #[must_use]
    pub fn with_write_timeout(mut self, limit: Duration) -> Self {
        self.set_write_timeout(Some(limit));
        self
    }

    /// Limits how long there may be silence in both directions, as
    /// [`set_idle_timeout`](Self::set_idle_timeout) does.
    #[must_use]
    pub fn with_idle_timeout(mut self, limit: Duration) -> Self {
        self.set_idle_timeout(Some(limit));
        self
    }

    /// Sets the instant by which all operations must be done, as
    /// [`set_deadline`](Self::set_deadline) does.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.set_deadline(Some(deadline));
        self
    }

    /// How long a read may wait for its peer.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.waits.settings().read.limit
    }

    /// Sets how long a read may wait for its peer; `None` for as long as it takes.
    ///
    /// The limit counts from the first poll of a read that returns `Pending` until a read is ready,
    /// even if the first read is [dropped](super#how-it-works) meanwhile. Bytes that are written
    /// [restart it](Self::set_writes_restart_reads). Calling this method restarts a wait in
    /// progress at its next poll, but wakes no task.
    pub fn set_read_timeout(&mut self, limit: Option<Duration>) {
        self.waits.set(|settings| settings.read.set(limit));
    }

    /// Returns `true` if a write of bytes restarts the wait of a read.
    #[must_use]
    pub fn writes_restart_reads(&self) -> bool {
        self.waits.writes_restart_reads()
    }

    /// Sets whether a write of bytes restarts the [wait of a read](Self::set_read_timeout). It does
    /// by default.
    ///
    /// By default, the limit for reads limits the wait for a response. A client that reads all the
    /// time, as hyper's does to detect the end of an idle connection, allows the whole limit for
    /// the response to each request. With `false`, the peer must send something within each limit,
    /// whatever it is sent. That suits a server whose clients have to send heartbeats, such as
    /// those of MQTT.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::io::TimeoutStream;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// # struct TcpStream;
    /// # let accepted = TcpStream;
    /// let mut stream = TimeoutStream::new(&timer, accepted);
    /// let keep_alive = Duration::from_secs(60); // as the client has promised
    /// stream.set_read_timeout(Some(keep_alive * 3 / 2));
    /// stream.set_writes_restart_reads(false);
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn set_writes_restart_reads(&mut self, restart: bool) {
        self.waits.set_writes_restart_reads(restart);
    }

    /// How long a write, flush or shutdown may wait for its peer.
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        self.waits.settings().write.limit
    }

    /// Sets how long a write, flush or shutdown may wait for its peer; `None` for as long as it
    /// takes.
    ///
    /// The limit counts as that for [reads](Self::set_read_timeout) does, except that bytes that
    /// are read do not restart it. A peer that reads slowly all the time may make one write wait
    /// for seconds. The [module](super#how-long-a-limit-for-writes-must-be) explains how long the
    /// limit must be.
    pub fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.waits.set(|settings| settings.write.set(limit));
    }

    /// How long there may be silence in both directions.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.waits.settings().idle.limit
    }

    /// Sets how long there may be silence in both directions; `None` for as long as it takes.
    ///
    /// It counts from the last bytes that went either way, or from when the direction that waits
    /// began to, if that was later: so a stream that sends need not be sent anything, and one that
    /// nobody asks for anything is not idle. Whatever waits ends when it has passed. It takes
    /// effect as that of [reads](Self::set_read_timeout) does.
    pub fn set_idle_timeout(&mut self, limit: Option<Duration>) {
        self.waits.set(|settings| settings.idle.set(limit));
    }

    /// By when all must be done.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.waits.deadline()
    }

    /// Sets by when all must be done, such as the rest of a message; `None` for whenever it is.
    ///
    /// From then on all operations end with an error, those too for which the stream is ready, so
    /// that a peer that sends a byte now and then, or without end, is ended as well; but a shutdown
    /// that need not wait is done. One that waits hears of a new deadline with its next poll.
    ///
    /// On a timer with a driver, operations end about a tick after the deadline if they waited for
    /// it, or if they notice it late. Bytes that the system received before the deadline are
    /// therefore read even if another task blocked the runtime's thread.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.waits.set_deadline(deadline);
    }

    /// Returns a handle with which other code, such as the service that works on a request, can
    /// pause, resume and change the limits while a connection owns this stream.
    ///
    /// The first call allocates. From then on each operation takes a lock that it shares with the
    /// handles, and an operation that has to wait takes it twice. A handle does not wake a task
    /// that was already waiting when the first handle was created, until that task has polled
    /// again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::Timer;
    /// use tourbillon::io::TimeoutStream;
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let stream = TimeoutStream::new(&timer, std::io::empty());
    /// let handle = stream.handle();
    /// handle.set_idle_timeout(Some(Duration::from_secs(30)));
    /// assert_eq!(stream.idle_timeout(), Some(Duration::from_secs(30)));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn handle(&self) -> StreamHandle {
        self.waits.handle()
    }

    /// The stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// The stream. What is done by it passes the limits by.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// The stream, pinned. What is done by it passes the limits by.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut S> {
        self.project().stream
    }

    /// The stream, without its limits.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// An operation that must not begin after the deadline.
    #[inline]
    pub(super) fn limited<R>(
        mut self: Pin<&mut Self>,
        direction: Direction,
        does: Operation,
        context: &mut Context<'_>,
        operation: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if self.as_mut().project().waits.poll_deadline(direction, context).is_ready() {
            return Poll::Ready(Err(StreamError::Elapsed(Limit::Deadline).into()));
        }
        self.waiting(direction, does, context, operation)
    }

    /// An operation, of which only the wait is limited.
    #[inline]
    pub(super) fn waiting<R>(
        self: Pin<&mut Self>,
        direction: Direction,
        does: Operation,
        context: &mut Context<'_>,
        operation: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let this = self.project();
        if let Poll::Ready(done) = operation(this.stream, context) {
            this.waits.finish_operation(direction, does);
            return Poll::Ready(done);
        }
        let given_up = ready!(this.waits.poll_limits(direction, does, context));
        Poll::Ready(Err(given_up.into()))
    }
}

impl<S: AsyncRead> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.limited(Direction::Reads, Operation::Move, context, |stream, context| {
            stream.poll_read(context, buffer)
        })
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(Direction::Reads, Operation::Move, context, |stream, context| {
            stream.poll_read_vectored(context, buffers)
        })
    }
}

impl<S: AsyncWrite> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.limited(Direction::Writes, Operation::Move, context, |stream, context| {
            stream.poll_write(context, bytes)
        })
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(Direction::Writes, Operation::Move, context, |stream, context| {
            stream.poll_write_vectored(context, slices)
        })
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(Direction::Writes, Operation::Finish, context, S::poll_flush)
    }

    fn poll_close(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting(Direction::Writes, Operation::Finish, context, S::poll_close)
    }
}
