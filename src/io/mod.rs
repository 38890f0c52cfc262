//! Timeouts of byte streams: limits for a read, a write, silence or a whole message.
//!
//! A [`TimeoutStream`] wraps a connection and implements the same traits: the traits of
//! `futures-io` and, with the feature `tokio` or `hyper`, of tokio or hyper. An operation that
//! takes too long fails with an error of kind [`TimedOut`](std::io::ErrorKind::TimedOut), whose
//! [`StreamError`] states which [`Limit`] has passed.
//!
//! ```
//! use futures_io::AsyncRead;
//! use std::io;
//! use std::pin::Pin;
//! use std::task::{Context, Poll};
//! use std::time::Duration;
//! use tourbillon::io::{Limit, StreamError, TimeoutStream};
//! use tourbillon::testing::block_on;
//!
//! /// A peer that says nothing.
//! struct Silent;
//!
//! impl AsyncRead for Silent {
//!     fn poll_read(
//!         self: Pin<&mut Self>,
//!         _: &mut Context<'_>,
//!         _: &mut [u8],
//!     ) -> Poll<io::Result<usize>> {
//!         Poll::Pending
//!     }
//! }
//!
//! // In virtual time, by the feature `testing`; any `Timer` will do.
//! let ended = block_on(|timer| async move {
//!     let mut stream = TimeoutStream::new(&timer, Silent);
//!     stream.set_read_timeout(Some(Duration::from_secs(30)));
//!     let mut buffer = [0; 16];
//!     std::future::poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut buffer)).await
//! });
//! let error = ended.unwrap_err();
//! assert_eq!(error.kind(), io::ErrorKind::TimedOut);
//! assert_eq!(error.downcast::<StreamError>().ok(), Some(StreamError::Elapsed(Limit::Read)));
//! ```
//!
//! # Under hyper
//!
//! A hyper server, and therefore an axum or tonic server, also reads from a connection while a
//! handler works on a request, because it watches for the client to disconnect. The limits for
//! reads and for silence therefore count during that time too. By default they cut the connection
//! of a handler that takes longer than the limit, of server-sent events with longer pauses, and of
//! a silent WebSocket. There are two remedies.
//!
//! - Set only the limit for writes. Leave heads to hyper's own `header_read_timeout` (with the
//!   feature `hyper`, a [`Timer`](crate::future::Timer) is a hyper timer).
//! - [Pause](StreamHandle::pause) both limits while a request is being handled. If the body of the
//!   response takes long, store the guard in the body.
//!
//! A client of HTTP/2 that sends pings is never silent, and it answers the pings of hyper's
//! keep-alive. To end its connection when it makes no requests, pause during each request and set a
//! [keep-alive timeout](StreamHandle::set_keep_alive_timeout), which counts from the end of the
//! last pause.
//!
//! With the feature `hyper`, a stream over tokio's `TcpStream` can be passed to hyper without
//! an adapter, and a connector of hyper-util's client can return one:
//!
//! ```
//! use std::time::Duration;
//! use tourbillon::Builder;
//! use tourbillon::future::Timer;
//! use tourbillon::io::TimeoutStream;
//!
//! let timer = Timer::spawn(Builder::new().driver())?;
//! # let accepted = std::io::empty();
//! let stream = TimeoutStream::new(&timer, accepted) // a `TcpStream`
//!     .with_idle_timeout(Duration::from_secs(30))
//!     .with_write_timeout(Duration::from_secs(10));
//! let connection = stream.handle();
//! // let service = service_fn(move |request| {
//! //     let paused = connection.pause();
//! //     async move {
//! //         let _paused = paused;
//! //         answer(request).await
//! //     }
//! // });
//! // http1::Builder::new().serve_connection(stream, service).await?;
//! # drop((stream, connection));
//! # Ok::<(), tourbillon::BuildError>(())
//! ```
//!
//! With `axum::serve`, a `Listener` returns such streams, and the application's `Connected` type
//! takes the handle from the `IncomingStream`. Handlers and middleware then obtain it with
//! `ConnectInfo`.
//!
//! On a client, the limit for reads bounds the wait for a response, because a write [restarts
//! it](TimeoutStream::set_writes_restart_reads).
//!
//! # How it works
//!
//! **A packet costs a store.** Bytes that arrive end the pending wait without touching a timer. A
//! timer that was armed for an earlier wait stays armed. If it fires, the stream checks its limits
//! and arms the timer again for the next one. Netty's `IdleStateHandler` and Jetty's `IdleTimeout`
//! work in the same way. A connection that is never silent for as long as its limit wakes its task
//! once in that time.
//!
//! **Each direction has its own timer**, armed when that direction first has to wait, because a
//! timer holds one waker and the halves of a stream may be polled by two tasks. A connection that
//! waits for its peer's next request has one timer. Split the limited stream itself, as
//! `tokio::io::split` does. If the owned halves of a `TcpStream` are limited separately, neither
//! half sees the other's bytes, so a silence of both is not detected.
//!
//! **A limit applies only while an operation waits**, from the first poll that returns `Pending`
//! until one that does not. A stream therefore never fails because of a time without an operation
//! in progress. Dropping the future of a read during its wait does not end that wait, and the next
//! read resumes it. If the limit passes in between, the woken task does not poll the stream. A read
//! that begins more than a quarter of the limit later, or more than a second later, counts as a new
//! one and has the whole limit. The same applies to writes. This happens only once until bytes
//! move, so a runtime whose tasks are always that late ends a silent peer after twice its limit.
//!
//! # How long limits must be while a stream sends
//!
//! A write waits until the system accepts bytes. A system whose buffer is full accepts more only
//! after a considerable part of the buffer is free again. On Linux that is about a third, and
//! buffers grow to several megabytes. A peer that reads slowly but without a pause can therefore
//! make one write wait for a long time. Seven seconds were measured at 200 kB/s.
//!
//! During that wait no byte moves, as far as the stream can see. The wait therefore counts for the
//! limit for writes and for the limit for silence. Set both longer than the slowest
//! acceptable peer takes to read a third of the buffer. Alternatively, make the buffer smaller with
//! `SO_SNDBUF` or `TCP_NOTSENT_LOWAT`. A limit for silence that must be shorter can be
//! [removed](TimeoutStream::set_idle_timeout) while a large response is sent, and the limit for
//! writes then decides alone.

#![forbid(unsafe_code)]

mod error;
mod handle;
#[cfg(feature = "hyper")]
mod hyper;
mod settings;
mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod wait_timer;
mod waits;

pub use error::{Limit, StreamError};
pub use handle::{StreamHandle, StreamPause};
pub use stream::TimeoutStream;
