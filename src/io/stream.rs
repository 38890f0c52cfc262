//! [`TimeoutStream`]: a byte stream with timeouts, and its `futures-io` traits.

#![forbid(unsafe_code)]

use super::error::StreamError;
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
    /// A byte stream whose operations fail if its peer takes too long. It has no limits until they
    /// are set.
    ///
    /// It implements `AsyncRead` and `AsyncWrite`, each if `S` does, of `futures-io` and, with the
    /// feature `tokio`, of tokio. It is `Unpin` if `S` is. An operation that is ready at once never
    /// fails with a timeout, except after the [deadline](Self::set_deadline). Like a
    /// [`Timeout`](crate::future::Timeout), a stream on a timer with a driver, or one that notices
    /// the end of a limit late, polls `S` once more about a millisecond later, before it reports
    /// the timeout. Bytes that the system received in time are therefore read even if another task
    /// blocked the runtime's thread. An operation that timed out has moved no bytes and may be
    /// tried again, with a new wait.
    ///
    /// # Errors
    ///
    /// Returns the errors of `S`. If a limit has passed, returns an error of kind
    /// [`TimedOut`](io::ErrorKind::TimedOut). If an operation would have to wait but the timer was
    /// shut down or is full, returns an error of kind [`Other`](io::ErrorKind::Other). Both contain
    /// a [`StreamError`].
    ///
    /// # Examples
    ///
    /// A connection that may be silent for five seconds and may take a minute for each message.
    /// With the feature `tokio` it can be a `TcpStream` of tokio.
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
    /// Creates a stream without limits, whose timers are armed on `timer`.
    ///
    /// Pass a clone of the timer for each connection or each thread, so that they share no counter.
    pub fn new(timer: &Timer, stream: S) -> Self {
        Self { stream, waits: Waits::new(timer.share()) }
    }

    /// Sets the limit for a read, like [`set_read_timeout`](Self::set_read_timeout).
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

    /// Sets the limit for a write, flush or shutdown, like
    /// [`set_write_timeout`](Self::set_write_timeout).
    #[must_use]
    pub fn with_write_timeout(mut self, limit: Duration) -> Self {
        self.set_write_timeout(Some(limit));
        self
    }

    /// Sets the limit for silence in both directions, like
    /// [`set_idle_timeout`](Self::set_idle_timeout).
    #[must_use]
    pub fn with_idle_timeout(mut self, limit: Duration) -> Self {
        self.set_idle_timeout(Some(limit));
        self
    }

    /// Sets the deadline of all operations, like [`set_deadline`](Self::set_deadline).
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.set_deadline(Some(deadline));
        self
    }

    /// Returns the limit for a read, if there is one.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.waits.settings().read.limit
    }

    /// Sets how long a read may wait for the peer. `None` removes the limit.
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

    /// Sets whether a write of bytes restarts the [wait of a read](Self::set_read_timeout). The
    /// default is `true`.
    ///
    /// The limit for reads then bounds the wait for a response. A client that reads all the time,
    /// as hyper's does to detect the end of an idle connection, allows the whole limit for the
    /// response to each request. With `false`, the peer must send something within each limit,
    /// whatever it is sent. That suits a server whose clients have to send heartbeats, as in MQTT.
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

    /// Returns the limit for a write, flush or shutdown, if there is one.
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        self.waits.settings().write.limit
    }

    /// Sets how long a write, flush or shutdown may wait for the peer. `None` removes the limit.
    ///
    /// The limit counts in the same way as the limit for [reads](Self::set_read_timeout), but bytes
    /// that are read do not restart it. A peer that reads slowly but without a pause may make one
    /// write wait for seconds. The [module](super#how-long-limits-must-be-while-a-stream-sends)
    /// explains how long the limit must be.
    pub fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.waits.set(|settings| settings.write.set(limit));
    }

    /// Returns the limit for silence in both directions, if there is one.
    #[must_use]
    pub fn idle_timeout(&self) -> Option<Duration> {
        self.waits.settings().idle.limit
    }

    /// Sets how long there may be silence in both directions. `None` removes the limit.
    ///
    /// The limit is measured from the last byte in either direction, or from the start of the
    /// pending wait if that is later. A stream that is sending is not idle, even if it receives
    /// nothing. A stream without a pending operation is not idle either. When the limit passes,
    /// every pending operation fails. A change takes effect in the same way as for
    /// [reads](Self::set_read_timeout).
    ///
    /// A byte that is sent counts when the system accepts it, and not when the peer reads it. A
    /// peer that reads slowly but without a pause may therefore look silent for seconds while a
    /// large send buffer drains. The [module](super#how-long-limits-must-be-while-a-stream-sends)
    /// explains how long the limit must be for a stream that sends much.
    pub fn set_idle_timeout(&mut self, limit: Option<Duration>) {
        self.waits.set(|settings| settings.idle.set(limit));
    }

    /// Returns the deadline of all operations, if there is one.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.waits.deadline()
    }

    /// Sets an absolute deadline, such as one for the rest of a message. `None` removes it.
    ///
    /// After the deadline every operation fails, even if the stream is ready, so that a peer that
    /// trickles data or never stops sending is cut off too. A shutdown that can complete without
    /// waiting still succeeds. A pending operation notices a new deadline at its next poll.
    ///
    /// On a timer with a driver, operations that waited for the deadline fail about a millisecond
    /// after they have noticed it. So do operations that notice it late, on any timer. Bytes that
    /// the system received before the deadline are therefore read even if another task blocked the
    /// runtime's thread.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.waits.set_deadline(deadline);
    }

    /// Returns a handle to the limits, for code that does not own the stream.
    ///
    /// A service can use it to pause and change the limits while a connection owns the stream.
    ///
    /// The first call allocates. From then on each operation takes a lock that it shares with the
    /// handles, and an operation that has to wait takes it twice. A task that was already waiting
    /// when the first handle was created is not woken by a handle until it has polled again.
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

    /// Returns a reference to the inner stream.
    pub fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Returns a mutable reference to the inner stream. Operations on it bypass the limits.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Returns a pinned mutable reference to the inner stream. Operations on it bypass the limits.
    pub fn get_pin_mut(self: Pin<&mut Self>) -> Pin<&mut S> {
        self.project().stream
    }

    /// Returns the inner stream.
    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Performs an operation unless the deadline has passed.
    #[inline]
    pub(super) fn limited<R>(
        mut self: Pin<&mut Self>,
        direction: Direction,
        does: Operation,
        context: &mut Context<'_>,
        operation: impl FnOnce(Pin<&mut S>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(limit) = self.as_mut().project().waits.poll_deadline(direction, context)
        {
            return Poll::Ready(Err(StreamError::Elapsed(limit).into()));
        }
        self.waiting(direction, does, context, operation)
    }

    /// Performs an operation and limits only its wait.
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
