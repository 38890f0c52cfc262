//! [`Request`], an operation with the caller that waits for it.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::quietly;
use crate::store::remote::retry::Limit;
use futures_channel::oneshot;
use std::time::Instant;

/// An operation of type `O` with the caller that waits for the reply `A`.
pub(crate) struct Request<O, A> {
    pub(crate) operation: O,
    pub(crate) limit: Limit,
    /// Set if the operation must not be sent once its future was dropped. Otherwise it is still
    /// sent until the limit has passed.
    skip_if_dropped: bool,
    reply: oneshot::Sender<Result<A, DurableError>>,
}

impl<O, A> Request<O, A> {
    /// Returns a request, and the reply that its caller waits for.
    pub(crate) fn new(
        operation: O,
        limit: Limit,
        skip_if_dropped: bool,
    ) -> (Self, oneshot::Receiver<Result<A, DurableError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { operation, limit, skip_if_dropped, reply }, answer)
    }

    /// Returns `true` if the request must not be sent any more.
    pub(crate) fn is_abandoned(&self, now: Instant) -> bool {
        self.reply.is_canceled() && (self.skip_if_dropped || self.limit.has_passed(now))
    }

    /// Sends the reply to the caller, unless it has gone.
    pub(crate) fn respond(self, reply: Result<A, DurableError>) {
        // A waker that panics must not end the task of the queue.
        quietly(|| drop(self.reply.send(reply)));
    }
}
