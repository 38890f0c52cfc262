//! State that all connections share.

use crate::tally::Tally;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The time limits of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) idle: Duration,
    pub(crate) request: Duration,
    pub(crate) body: Duration,
    pub(crate) ping: Duration,
}

/// State that all connections share.
pub(crate) struct Shared<T> {
    pub(crate) limits: Limits,
    pub(crate) tally: Arc<Tally>,
    pub(crate) timers: T,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
}
