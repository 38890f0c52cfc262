//! [`Server`] and [`Connection`], which all protocols share.

use crate::audit::Audit;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};

/// The settings and the audit of a server.
pub(crate) struct Server {
    pub(super) idle: Duration,
    pub(super) audit: Arc<Audit>,
}

/// A byte stream that a task owns.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin + 'static {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> Connection for S {}
