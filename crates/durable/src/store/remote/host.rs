//! [`Host`], the clock and the tasks of requests.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// The clock that requests are timed by, and the place where their tasks run.
pub(crate) trait Host: Send + Sync + 'static {
    /// Returns the time.
    fn now(&self) -> Instant;

    /// Waits until a time. The future can be polled anywhere.
    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send;

    /// Starts a task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Waits for a while.
    fn sleep(&self, length: Duration) -> impl Future<Output = ()> + Send {
        self.sleep_until(self.now() + length)
    }
}

/// Returns the runtime of a caller that connects a store.
pub(crate) fn runtime() -> Result<Handle, DurableError> {
    Handle::try_current().map_err(|_| DurableError::Option("connect needs a tokio runtime"))
}

impl Host for Handle {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        let _entered = self.enter();
        tokio::time::sleep_until(deadline.into())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(Handle::spawn(self, task));
    }
}
