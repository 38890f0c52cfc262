//! A worker whose events are all observed.

#![allow(clippy::disallowed_methods, reason = "a worker has a thread of its own")]

use super::bench::{MILLISECOND, wait};
use futures_channel::oneshot;
use futures_util::FutureExt;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use tourbillon_durable::{Delivery, DurableError, Event, Verdict, Worker};

pub(crate) struct Observed {
    events: Receiver<Event>,
    end: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), DurableError>>,
}

impl Observed {
    pub(crate) fn start<H, F>(worker: Worker, handler: H) -> Self
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output: Into<Verdict>> + Send + 'static,
    {
        let ((send, events), (end, ends)) = (channel(), oneshot::channel::<()>());
        let worker = worker.observe(move |event| drop(send.send(event.clone())));
        let run = worker.until(ends.map(drop)).run(handler);
        Self { events, end, thread: std::thread::spawn(move || wait(run)) }
    }

    /// Returns the next event. Until it comes, `step` is repeated.
    pub(crate) fn next(&self, step: impl Fn()) -> Event {
        for _ in 0..600 {
            if let Ok(event) = self.events.recv_timeout(100 * MILLISECOND) {
                return event;
            }
            step();
        }
        panic!("there is no event");
    }

    /// Ends the worker. Returns the events that were not taken yet.
    pub(crate) fn stop(self) -> Vec<Event> {
        drop(self.end);
        assert_eq!(self.thread.join().unwrap(), Ok(()));
        self.events.iter().collect()
    }

    /// Returns `true` if the worker has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until the worker fails.
    pub(crate) fn failed(self) -> DurableError {
        self.thread.join().unwrap().unwrap_err()
    }
}
