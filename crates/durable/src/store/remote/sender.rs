//! [`Engine`], which sends the operations of a store in batches.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use crate::store::remote::queue::Queue;
use crate::store::remote::request::Request;
use crate::store::remote::retry::{Limit, Pauses, RetryPolicy};
use std::sync::Arc;
use std::time::Duration;

/// The requests of a store.
pub(crate) type RequestOf<T> = Request<<T as Transport>::Operation, <T as Transport>::Reply>;

/// The replies to the operations of a batch, by their positions.
pub(crate) type Replies<T> = Vec<Result<<T as Transport>::Reply, RequestError>>;

/// A store whose operations are sent in batches.
pub(crate) trait Transport: Sized + Send + Sync + 'static {
    type Operation: Send + Sync;
    type Reply: Send;
    type Host: Host;

    /// Returns the engine of this store.
    fn engine(&self) -> &Engine<Self>;

    /// Fails if the store may no longer be used.
    fn check_usable(&self) -> Result<(), DurableError> {
        Ok(())
    }

    /// Returns the maximum number of operations in a batch of a queue, and the maximum number of
    /// bytes, which a single operation may exceed.
    fn bounds(place: usize) -> (usize, usize);

    /// Returns the approximate number of bytes of an operation.
    fn weight(operation: &Self::Operation) -> usize;

    /// Sends a batch once, under its number. `lost` is the number of its replies that were lost.
    /// Operations that fail alone have their own errors.
    fn send(
        &self,
        queue: &Queue<RequestOf<Self>>,
        batch: &Batch<Self>,
        lost: u32,
    ) -> impl Future<Output = Result<Replies<Self>, RequestError>> + Send;

    /// Takes over a batch that has failed, or returns it to be sent again.
    fn recover(
        _sender: &Sender<Self>,
        batch: Batch<Self>,
        error: RequestError,
    ) -> impl Future<Output = Option<(Batch<Self>, RequestError)>> + Send {
        std::future::ready(Some((batch, error)))
    }
}

/// The queues of a store.
pub(crate) struct Engine<T: Transport> {
    pub(crate) host: T::Host,
    call_timeout: Duration,
    queues: Vec<Arc<Queue<RequestOf<T>>>>,
}

impl<T: Transport> Engine<T> {
    pub(crate) fn new(host: T::Host, call_timeout: Duration, queues: usize) -> Self {
        let queues = (0..queues).map(|place| Arc::new(Queue::new(place))).collect();
        Self { host, call_timeout, queues }
    }

    /// Returns how long a caller waits from now on.
    pub(crate) fn limit(&self, policy: RetryPolicy) -> Limit {
        Limit::new(&self.host, policy.longest(self.call_timeout))
    }

    /// Returns the queue at a place.
    pub(crate) fn queue(&self, place: usize) -> &Arc<Queue<RequestOf<T>>> {
        &self.queues[place]
    }

    /// Adds an operation to a queue, and returns the future of what `read` makes of its reply. If
    /// the future is dropped, the operation is executed and its reply is read, unless it is to be
    /// skipped and was not sent yet.
    pub(crate) fn ask<R, F>(
        transport: &Arc<T>,
        place: usize,
        operation: T::Operation,
        limit: Limit,
        skip_if_dropped: bool,
        read: F,
    ) -> impl Future<Output = Result<R, DurableError>> + Send + use<T, R, F>
    where
        R: Send + 'static,
        F: FnOnce(T::Reply) -> Result<R, DurableError> + Send + Sync + 'static,
    {
        let (request, answer) = Request::new(operation, limit, skip_if_dropped, read);
        let queue = transport.engine().queue(place);
        if queue.push(request) {
            Sender::start(transport, queue);
        }
        async move { answer.await.unwrap_or(Err(DurableError::Closed)) }
    }
}

/// Operations that are sent together.
pub(crate) struct Batch<T: Transport> {
    pub(crate) number: u64,
    /// An empty entry belonged to a caller that has given up.
    pub(crate) requests: Vec<Option<RequestOf<T>>>,
}

impl<T: Transport> Batch<T> {
    /// Fails some of its requests.
    pub(crate) fn fail(&mut self, error: &DurableError, which: impl Fn(&RequestOf<T>) -> bool) {
        for request in self.remove(which) {
            request.respond(Err(error.clone()));
        }
    }

    fn remove(
        &mut self,
        which: impl Fn(&RequestOf<T>) -> bool,
    ) -> impl Iterator<Item = RequestOf<T>> {
        self.requests.iter_mut().filter_map(move |request| request.take_if(|it| which(it)))
    }
}

/// Sends the batches of a queue, one after another, until none is waiting.
pub(crate) struct Sender<T: Transport> {
    pub(crate) transport: Arc<T>,
    pub(crate) queue: Arc<Queue<RequestOf<T>>>,
    ended: bool,
}

impl<T: Transport> Sender<T> {
    fn start(transport: &Arc<T>, queue: &Arc<Queue<RequestOf<T>>>) {
        let sender =
            Self { transport: Arc::clone(transport), queue: Arc::clone(queue), ended: false };
        transport.engine().host.spawn(sender.run());
    }

    async fn run(mut self) {
        while let Some(batch) = self.take() {
            self.execute(batch).await;
        }
        self.ended = true;
    }

    fn take(&self) -> Option<Batch<T>> {
        let now = self.host().now();
        let weigh = |request: &RequestOf<T>| {
            (!request.is_abandoned(now)).then(|| T::weight(&request.operation))
        };
        let (number, requests) = self.queue.take(T::bounds(self.queue.place), weigh)?;
        Some(Batch { number, requests })
    }

    /// Sends a batch under its number until a reply arrives, or no caller waits for one.
    async fn execute(&self, mut batch: Batch<T>) {
        let (mut pauses, mut lost) = (Pauses::new(), 0);
        while batch.requests.iter().any(Option::is_some) {
            let error = match self.transport.send(&self.queue, &batch, lost).await {
                Ok(replies) => {
                    self.queue.set_ambiguous(false);
                    if !self.complete(batch, replies) {
                        Pauses::new().wait(self.host()).await;
                    }
                    return;
                }
                Err(error) => error,
            };
            if error.kind == Kind::Ambiguous {
                self.queue.set_ambiguous(true);
                lost += 1;
            }
            let recovered = T::recover(self, batch, error).await;
            let Some((same, error)) = recovered else { return };
            batch = same;
            match error.kind {
                Kind::Fatal => return batch.fail(&error.error, |_| true),
                Kind::Rejected => self.reject(&mut batch, &error.error),
                _ => {}
            }
            self.note(&batch, &error.reason());
            pauses.wait(self.host()).await;
            let now = self.host().now();
            batch.remove(|request| request.is_abandoned(now)).for_each(drop);
        }
    }

    /// Completes a batch. Returns `true` if all of it was executed. Other operations join the end
    /// of the queue, because the operations before them may be executable.
    pub(crate) fn complete(&self, batch: Batch<T>, replies: Replies<T>) -> bool {
        let mut not_executed = Vec::new();
        for (request, reply) in batch.requests.into_iter().zip(replies) {
            let Some(request) = request else { continue };
            let error = match reply {
                Ok(reply) => {
                    request.respond(Ok(reply));
                    continue;
                }
                Err(error) => error,
            };
            match error.kind {
                Kind::Fatal => request.respond(Err(error.error)),
                Kind::Rejected if !request.limit.is_endless() => request.respond(Err(error.error)),
                _ => {
                    request.limit.note(&error.reason());
                    not_executed.push(request);
                }
            }
        }
        let is_done = not_executed.is_empty();
        if !is_done {
            self.queue.rejoin(not_executed);
        }
        is_done
    }

    /// Starts a task that executes a request in a queue of its own.
    #[cfg(feature = "postgres")]
    pub(crate) fn execute_alone(&self, request: RequestOf<T>, place: usize) {
        let queue = Arc::new(Queue::new(place));
        queue.push(request);
        Self::start(&self.transport, &queue);
    }

    /// Fails the requests of callers, which do not wait until a server can execute them.
    fn reject(&self, batch: &mut Batch<T>, error: &DurableError) {
        let is_caller = |request: &RequestOf<T>| !request.limit.is_endless();
        batch.fail(error, is_caller);
        // A single operation may have caused any other error.
        if matches!(error, DurableError::ReadOnly(_)) {
            for request in self.queue.remove(is_caller) {
                request.respond(Err(error.clone()));
            }
        }
    }

    /// Notes why there is no reply yet, and drops waiting requests whose callers have gone.
    fn note(&self, batch: &Batch<T>, reason: &str) {
        let now = self.host().now();
        drop(self.queue.remove(|request| {
            request.limit.note(reason);
            request.is_abandoned(now)
        }));
        batch.requests.iter().flatten().for_each(|request| request.limit.note(reason));
    }

    fn host(&self) -> &T::Host {
        &self.transport.engine().host
    }
}

/// Fails all waiting requests if the runtime has ended or the task has panicked.
impl<T: Transport> Drop for Sender<T> {
    fn drop(&mut self) {
        if !self.ended {
            self.queue.close();
        }
    }
}
