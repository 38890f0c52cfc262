//! [`CalmSleep`]: a sleep for those who can be told only that it has ended.

#![forbid(unsafe_code)]

use crate::future::Sleep;
use std::pin::Pin;
use std::task::{Context, Poll};
#[cfg(feature = "hyper")]
use std::time::Instant;

/// Ends also when it is refused, but lets the task go once before: whoever sleeps again at once,
/// for ever, would else never leave a poll.
#[derive(Debug)]
pub(crate) struct CalmSleep {
    sleep: Sleep,
    /// Set when a refusal has let the task go; cleared by a reset.
    refused: bool,
}

impl CalmSleep {
    pub(crate) fn new(sleep: Sleep) -> Self {
        Self { sleep, refused: false }
    }

    #[cfg(feature = "hyper")]
    pub(crate) fn reset(&mut self, deadline: Instant) {
        self.sleep.reset(deadline);
        self.refused = false;
    }
}

impl Future for CalmSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let slept = Pin::new(&mut self.sleep).poll(context);
        if matches!(slept, Poll::Ready(Err(_))) && !self.refused {
            self.refused = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        slept.map(drop)
    }
}
