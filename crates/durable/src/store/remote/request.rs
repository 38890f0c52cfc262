//! [`Request`], an operation with the caller that waits for it.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::quietly;
use crate::store::remote::retry::Limit;
use futures_channel::oneshot;
use std::time::Instant;

/// The caller of an operation with the reply `A`.
trait Caller<A>: Send + Sync {
    /// Returns `true` if the caller waits no more.
    fn is_gone(&self) -> bool;

    /// Reads the reply, and sends the result to the caller.
    fn respond(self: Box<Self>, reply: Result<A, DurableError>);
}

/// A caller that waits at its channel for what `read` returns.
struct Reading<R, F> {
    read: F,
    answer: oneshot::Sender<Result<R, DurableError>>,
}

impl<A, R, F> Caller<A> for Reading<R, F>
where
    R: Send,
    F: FnOnce(A) -> Result<R, DurableError> + Send + Sync,
{
    fn is_gone(&self) -> bool {
        self.answer.is_canceled()
    }

    fn respond(self: Box<Self>, reply: Result<A, DurableError>) {
        let Self { read, answer } = *self;
        // The caller may have gone.
        drop(answer.send(reply.and_then(read)));
    }
}

/// An operation of type `O` with the caller that waits for the reply `A`.
pub(crate) struct Request<O, A> {
    pub(crate) operation: O,
    pub(crate) limit: Limit,
    /// Set if the operation must not be sent once its future was dropped. Otherwise it is still
    /// sent until the limit has passed.
    skip_if_dropped: bool,
    caller: Box<dyn Caller<A>>,
}

impl<O, A> Request<O, A> {
    /// Returns a request, and the result that its caller waits for. `read` converts the reply to
    /// it. It is called even if the caller has gone, because workers learn of a change by it.
    pub(crate) fn new<R: Send + 'static>(
        operation: O,
        limit: Limit,
        skip_if_dropped: bool,
        read: impl FnOnce(A) -> Result<R, DurableError> + Send + Sync + 'static,
    ) -> (Self, oneshot::Receiver<Result<R, DurableError>>) {
        let (send, answer) = oneshot::channel();
        let caller = Box::new(Reading { read, answer: send });
        (Self { operation, limit, skip_if_dropped, caller }, answer)
    }

    /// Returns `true` if the request must not be sent any more.
    pub(crate) fn is_abandoned(&self, now: Instant) -> bool {
        self.caller.is_gone() && (self.skip_if_dropped || self.limit.has_passed(now))
    }

    /// Reads the reply, and sends the result to the caller.
    pub(crate) fn respond(self, reply: Result<A, DurableError>) {
        // A waker that panics must not end the task of the queue.
        quietly(|| self.caller.respond(reply));
    }
}
