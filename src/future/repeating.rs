//! [`Repeating`]: the sleep of an interval, or of a limit for each item.

#![forbid(unsafe_code)]

use super::sleep::Sleep;
use crate::Refusal;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// A sleep whose refusal is returned once, so that a loop that ignores errors does not spin.
///
/// A caller that continues after [`Refusal::Closed`] stays pending. After any other refusal the
/// next poll arms the sleep, beyond the wheel's capacity if necessary.
#[derive(Debug)]
pub(super) struct Repeating {
    pub(super) sleep: Sleep,
    refused: Option<Refusal>,
}

impl Repeating {
    pub(super) fn new(sleep: Sleep) -> Self {
        Self { sleep, refused: None }
    }

    /// Polls the sleep. After a refusal the deadline is still pending.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        let slept = match self.refused {
            None => ready!(Pin::new(&mut self.sleep).poll(context)),
            Some(Refusal::Closed) => return Poll::Pending,
            Some(_) => ready!(self.sleep.poll_admitted(context)),
        };
        if let Err(refusal) = slept {
            self.refused = Some(refusal);
            self.sleep.reset(self.sleep.deadline());
        }
        Poll::Ready(slept)
    }
}
