//! hyper's traits for [`TimeoutStream`], and hyper-util's trait for connections of its client.

#![forbid(unsafe_code)]

use super::stream::TimeoutStream;
use ::hyper::rt::{Read, ReadBufCursor, Write};
use ::hyper_util::client::legacy::connect::{Connected, Connection};
use ::hyper_util::rt::TokioIo;
use ::tokio::io::{AsyncRead, AsyncWrite};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Reads through tokio's trait, directly into hyper's buffer.
impl<S: AsyncRead> Read for TimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(pin!(TokioIo::new(self)), context, buffer)
    }
}

/// Writes through tokio's trait.
impl<S: AsyncWrite> Write for TimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write_vectored(self, context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        AsyncWrite::is_write_vectored(self)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(self, context)
    }
}

/// Returns the metadata of the inner stream, so that a connector can return streams with limits.
impl<S: Connection> Connection for TimeoutStream<S> {
    fn connected(&self) -> Connected {
        self.get_ref().connected()
    }
}
