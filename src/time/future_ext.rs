//! [`FutureExt`]: timeouts as methods of futures.

#![forbid(unsafe_code)]

use super::timeout::{Timeout, timeout, timeout_at};
use ::tokio::time::Instant;
use std::time::Duration;

/// Timeouts as methods of every future, as in `tokio_util::time` and `tokio_util::future`.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, FutureExt};
///
/// # pollster::block_on(async {
/// let silent = std::future::pending::<()>().timeout(Duration::from_millis(5));
/// assert!(silent.await.is_err());
/// # });
/// ```
pub trait FutureExt: Future {
    /// Limits the future to `duration` from now. See [`timeout()`].
    fn timeout(self, duration: Duration) -> Timeout<Self>
    where
        Self: Sized,
    {
        timeout(duration, self)
    }

    /// Limits the future to `deadline`. See [`timeout_at`].
    fn timeout_at(self, deadline: Instant) -> Timeout<Self>
    where
        Self: Sized,
    {
        timeout_at(deadline, self)
    }
}

impl<F: Future + ?Sized> FutureExt for F {}
