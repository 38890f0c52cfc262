//! Time-outs of byte streams: how long a read, a write, a silence or a whole message may take.
//!
//! A [`TimeoutStream`] wraps a connection and is one itself, by the traits of `futures-io` (and,
//! with the feature `tokio`, by tokio's; with `hyper-util`, by hyper's). What takes too long ends
//! with an error of kind [`TimedOut`](std::io::ErrorKind::TimedOut), which holds a [`StreamError`]:
//! it says which [`Limit`] has passed.
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
//! A server of hyper's, and so one of axum's or tonic's, reads from a connection also while a
//! handler works on a request, to notice that its client goes away. So the limits for reads and for
//! silence count then as well. Without more, they cut the connection of a handler that takes
//! longer, of server-sent events with longer pauses, and of a silent WebSocket. There are two ways
//! out.
//!
//! - Set the limit for writes alone, and leave heads to hyper's own `header_read_timeout` (a
//!   [`Timer`](crate::future::Timer) is a timer of hyper's, by the feature `hyper`) and connections
//!   of HTTP/2 to its keep-alive.
//! - [Pause](StreamHandle::pause) both limits while a request is worked on. The guard may lie in
//!   the body of the response, where that takes its time.
//!
//! With the feature `hyper-util` a stream over tokio's `TcpStream` is a connection of hyper's
//! without an adapter, and a connector of hyper-util's client may return one:
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
//! For `axum::serve`, a `Listener` returns such streams, and a `Connected` of the application's
//! takes the handle from the `IncomingStream`: by `ConnectInfo` each handler and middleware has it.
//!
//! A client's limit for reads is that of an answer, since what is written
//! [begins it anew](TimeoutStream::set_writes_restart_reads).
//!
//! # How it works
//!
//! **A packet costs a store.** When bytes come, the wait for them is crossed out, and no timer is
//! touched: the one that was armed for an earlier wait stays where it is. It is looked at when it
//! fires, and armed anew for what is then awaited. (Netty's `IdleStateHandler` and Jetty's
//! `IdleTimeout` do so too.) A connection that is never silent for as long as its limit wakes its
//! task once in that time.
//!
//! **Each direction has its own timer**, armed when it first has to wait: a timer holds one waker,
//! and the halves of a stream may be polled by two tasks. (Split the limited stream itself, as
//! `tokio::io::split` does. The owned halves of a `TcpStream`, each limited by itself, know nothing
//! of each other's bytes, and so of no common silence.) A connection that waits for its peer's
//! next request has one.
//!
//! **A limit counts while one waits.** From the first poll that returned `Pending` until one that
//! did not, so that a stream is not ended for a time in which no operation was under way.
//! A future that is dropped in its wait does not end that wait, and a read that follows goes on
//! with it. But when the limit passes meanwhile, the task that is woken for it does not poll the
//! stream. A read that comes later than a quarter of the limit after that, or than a second, is
//! taken for a new one and has the whole limit; so are writes. This happens once until bytes move:
//! a runtime whose tasks are always that late ends a silent peer at twice its limit.
//!
//! # What a limit for writes means
//!
//! A write waits until the system takes bytes, and a system that has filled its buffer takes more
//! only when a good part of that is free: about a third on Linux, whose buffers grow to some
//! megabytes. So a peer that reads without a pause, but slowly, lets one write wait for long: seven
//! seconds at 200 kB/s were seen. A limit for writes has to be longer than the peer takes for a
//! third of the buffer at the slowest rate that is to be served. Or make the buffer smaller, by
//! `SO_SNDBUF` or `TCP_NOTSENT_LOWAT`.

#![forbid(unsafe_code)]

mod alarm;
mod error;
mod handle;
#[cfg(feature = "hyper-util")]
mod hyper;
mod limits;
mod stream;
#[cfg(feature = "tokio")]
mod tokio;
mod watch;

pub use error::{Limit, StreamError};
pub use handle::{StreamHandle, StreamPause};
pub use stream::TimeoutStream;
