//! [`Processor`], which executes the requests to a server one at a time.

use std::collections::VecDeque;

/// A request that waits for the processor.
pub(crate) type Waiting = Box<dyn FnOnce() + Send>;

/// The processor of a server.
#[derive(Default)]
pub(crate) struct Processor {
    is_busy: bool,
    waiting: VecDeque<Waiting>,
    most_waiting: usize,
}

impl Processor {
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    pub(crate) fn set_busy(&mut self, is_busy: bool) {
        self.is_busy = is_busy;
    }

    /// Adds a request to the queue.
    pub(crate) fn wait(&mut self, request: Waiting) {
        self.waiting.push_back(request);
        self.most_waiting = self.most_waiting.max(self.waiting.len());
    }

    /// Returns the next request, if the processor is free.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        if self.is_busy { None } else { self.waiting.pop_front() }
    }

    /// Returns the maximum length of the queue since the last call.
    pub(crate) fn take_most_waiting(&mut self) -> usize {
        std::mem::replace(&mut self.most_waiting, self.waiting.len())
    }
}
