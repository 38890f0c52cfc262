//! [`Stream`], a connection with or without TLS that notes when bytes arrive.

#![forbid(unsafe_code)]

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

pub(crate) struct Stream {
    kind: Kind,
    heard: Heard,
}

enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// Notes when a byte has arrived. The messages of TLS itself do not count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Returns `true` if a byte has arrived since the last call.
    ///
    /// Relaxed: the bytes come through the task of the connection, which orders them.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Relaxed)
    }
}

impl Stream {
    pub(super) fn plain(stream: TcpStream) -> Self {
        Self { kind: Kind::Plain(stream), heard: Heard::default() }
    }

    pub(super) fn tls(stream: TlsStream<TcpStream>) -> Self {
        Self { kind: Kind::Tls(Box::new(stream)), heard: Heard::default() }
    }

    /// Returns the note of arriving bytes.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.clone()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (this, before) = (self.get_mut(), buffer.filled().len());
        let read = ready!(match &mut this.kind {
            Kind::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Kind::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        });
        if buffer.filled().len() > before {
            this.heard.0.store(true, Relaxed);
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Kind::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(context),
            Kind::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().kind {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Kind::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
