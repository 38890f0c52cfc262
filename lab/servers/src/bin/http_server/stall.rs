//! The limit for request bodies that stall. An answer that its client does not read is a write that
//! waits, and the stream of the connection limits those.

use crate::tally::Tally;
use crate::timers::Timers;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A sleep that is armed during a stall.
pub(crate) struct Patience<T: Timers> {
    timers: Arc<T>,
    limit: Duration,
    sleep: Option<Pin<Box<T::Sleep>>>,
    tally: Arc<Tally>,
}

impl<T: Timers> Patience<T> {
    pub(crate) fn new(timers: Arc<T>, limit: Duration, tally: Arc<Tally>) -> Self {
        Self { timers, limit, sleep: None, tally }
    }

    /// Forwards the result of a poll, or returns an error if it has been pending for too long.
    fn watch<R>(&mut self, answer: Poll<R>, context: &mut Context<'_>) -> Poll<io::Result<R>> {
        if let Poll::Ready(answer) = answer {
            self.sleep = None;
            return Poll::Ready(Ok(answer));
        }
        let sleep = || Box::pin(self.timers.sleep(self.limit));
        ready!(self.sleep.get_or_insert_with(sleep).as_mut().poll(context));
        self.tally.fire();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// The body of a request, with a limit between two frames.
pub(crate) struct Moving<T: Timers> {
    body: Incoming,
    patience: Patience<T>,
}

impl<T: Timers> Moving<T> {
    pub(crate) fn new(body: Incoming, patience: Patience<T>) -> Self {
        Self { body, patience }
    }
}

impl<T: Timers> Body for Moving<T> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        match ready!(self.patience.watch(frame, context)) {
            Ok(frame) => Poll::Ready(frame.map(|frame| frame.map_err(Into::into))),
            Err(late) => Poll::Ready(Some(Err(late.into()))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
