//! The two timers of the server, with the same timeouts on either.

use hyper::rt;
use hyper_util::rt::TokioTimer;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tourbillon::future::{Sleep, Timer};
use tourbillon::io::TimeoutStream;

/// The operations of a timer. Each connection has a clone and shares it.
pub(crate) trait Timers: Clone + Send + Sync + Unpin + 'static {
    /// The timer for hyper's own timeouts.
    type Hyper: rt::Timer + Send + Sync + 'static;
    type Sleep: Future + Send + 'static;

    fn hyper(&self) -> Self::Hyper;

    fn sleep(&self, delay: Duration) -> Self::Sleep;

    fn reset(sleep: Pin<&mut Self::Sleep>, deadline: Instant);

    /// Limits the time that a write of a connection may wait for its client.
    fn limit_writes<S: Connection>(&self, stream: S, limit: Duration) -> impl Connection;

    fn now(&self) -> Instant {
        rt::Timer::now(&self.hyper())
    }

    /// The number of armed timers, if the timer reports it.
    fn left(&self) -> Option<usize>;
}

/// A byte stream that a task of the server owns.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for S {}

/// The timer of tokio's runtime.
#[derive(Clone)]
pub(crate) struct Tokio;

impl Timers for Tokio {
    type Hyper = TokioTimer;
    type Sleep = tokio::time::Sleep;

    fn hyper(&self) -> TokioTimer {
        TokioTimer::new()
    }

    fn sleep(&self, delay: Duration) -> tokio::time::Sleep {
        tokio::time::sleep(delay)
    }

    fn reset(sleep: Pin<&mut tokio::time::Sleep>, deadline: Instant) {
        sleep.reset(deadline.into());
    }

    fn limit_writes<S: Connection>(&self, stream: S, limit: Duration) -> impl Connection {
        let mut stream = tokio_io_timeout::TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limit));
        Box::pin(stream)
    }

    fn left(&self) -> Option<usize> {
        None
    }
}

impl Timers for Timer {
    type Hyper = Timer;
    type Sleep = Sleep;

    fn hyper(&self) -> Timer {
        self.clone()
    }

    fn sleep(&self, delay: Duration) -> Sleep {
        self.sleep(delay)
    }

    fn reset(sleep: Pin<&mut Sleep>, deadline: Instant) {
        sleep.get_mut().reset(deadline);
    }

    fn limit_writes<S: Connection>(&self, stream: S, limit: Duration) -> impl Connection {
        TimeoutStream::new(self, stream).with_write_timeout(limit)
    }

    fn now(&self) -> Instant {
        rt::Timer::now(self)
    }

    fn left(&self) -> Option<usize> {
        Some(self.wheel().len())
    }
}
