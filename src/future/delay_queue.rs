//! [`DelayQueue`]: values that come out of a stream, each when its time has come.
//!
//! The queue is a wheel of its own, which whoever polls the stream sweeps; one [`Sleep`] of a
//! [`Timer`] wakes it for the next sweep. Nothing is handed from thread to thread but that wake-up.
//! An insert that is due before it rings the wheel's waker; that runs in the midst of an operation,
//! and so only notes that it rang, and the operation's caller wakes the stream's task after it.

#![forbid(unsafe_code)]

use super::budget::{Budget, yield_once};
use super::sleep::Sleep;
use super::timer::Timer;
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicUsize, Relaxed, Release, SeqCst, fence};
use crate::{
    BeyondRange, BuildError, Builder, Clock, Expired, InsertError, Metrics, Refusal, Sweeper,
    TimerId, Unfired, Wheel,
};
use atomic_waker::AtomicWaker;
use futures_core::Stream;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// A queue whose values come out one by one, each when its delay has passed: a [`Stream`] of
/// [`Expired`].
///
/// As tokio-util's `DelayQueue`, whose `remove` is [`cancel`](DelayQueueHandle::cancel) here. Any
/// thread may insert, cancel and reset, through `&self` or a [handle](DelayQueueHandle), without a
/// lock, while the stream is polled; and a stale id is reported and does not panic.
///
/// The stream ends when the queue is empty and no handle is left to insert into it, or it was
/// [closed](DelayQueueHandle::close); or when its timer was shut down: it then closes itself, and
/// what is left is for [`drain`](DelayQueueHandle::drain). On a timer that is at its capacity the
/// queue arms its one sleep beyond that. Values of the same tick come in no
/// particular order. A queue has a wheel of its own, which takes some 80 KiB when it is empty. It
/// has one shard unless the builder says otherwise; each further shard takes 45 KiB.
///
/// No poll holds its task for long, and after 64 values in a row the stream wakes its task and is
/// `Pending` once, so that a queue of which much is due lets other tasks have their turn.
///
/// # Examples
///
/// ```
/// use std::future::poll_fn;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{DelayQueue, Timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut queue = DelayQueue::new(&timer, Builder::new())?;
/// queue.insert("retry", Duration::from_millis(5))?;
/// let given_up = queue.insert("give up", Duration::from_secs(5))?;
///
/// let handle = queue.handle(); // for any thread
/// assert_eq!(handle.cancel(given_up), Some("give up"));
/// drop(handle);
///
/// pollster::block_on(async {
///     // `StreamExt::next` of futures-util does the same.
///     let retry = poll_fn(|context| queue.poll_expired(context)).await;
///     assert_eq!(retry.map(|expired| expired.value), Some("retry"));
///     assert_eq!(poll_fn(|context| queue.poll_expired(context)).await, None);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DelayQueue<T> {
    sweeper: Sweeper<T>,
    sleep: Sleep,
    budget: Budget,
    handle: DelayQueueHandle<T>,
}

/// Inserts into a [`DelayQueue`], cancels and resets, from any thread; made by
/// [`handle`](Self::handle). The queue itself is used in the same way.
///
/// # Examples
///
/// A thread that inserts while a task takes out:
///
/// ```
/// use std::future::poll_fn;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{DelayQueue, Timer};
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut queue = DelayQueue::new(&timer, Builder::new())?;
/// let handle = queue.handle();
/// std::thread::spawn(move || handle.insert("retry", Duration::ZERO));
/// pollster::block_on(async {
///     let retry = poll_fn(|context| queue.poll_expired(context)).await;
///     assert_eq!(retry.map(|retry| retry.value), Some("retry"));
///     // The thread and its handle have gone, so nothing more can come.
///     assert!(poll_fn(|context| queue.poll_expired(context)).await.is_none());
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DelayQueueHandle<T> {
    wheel: Wheel<T>,
    stream: Arc<StreamTask>,
}

/// Wakes the task that polls the stream.
#[derive(Default)]
struct StreamTask {
    /// Set when the stream is to be polled; cleared by who then wakes its task.
    wake_requested: AtomicBool,
    task: AtomicWaker,
    /// How many handles there are, the queue's own included.
    handles: AtomicUsize,
    /// How many removals empty the queue, as long as it has no handle but its own. Set by each poll
    /// that finds it so and is `Pending`; counted down by removals. Inserts do not count: the
    /// stream may be woken too early, and sets it again. Before the first such poll, and once it
    /// has been counted down, it means nothing: then the stream waits for nobody, or was woken.
    remaining: AtomicUsize,
}

impl StreamTask {
    /// Notes that the stream is to be polled.
    fn request_wake(&self) {
        // Release: pairs with the Acquire of `wake_if_requested`: who wakes the task has what rang
        // behind it. An exchange, so that of several ringers each is seen.
        self.wake_requested.swap(true, Release);
    }

    /// Wakes the task, if the bell has wake_requested.
    ///
    /// One thread does it for all that have rung by then. Should it be preempted on the way, the
    /// wake-up waits for it, as it would inside of any waker that is handed from thread to thread.
    #[inline]
    fn wake_if_requested(&self) {
        // Relaxed: the ringer is this thread, or one that will come here itself.
        if self.wake_requested.load(Relaxed) {
            // Acquire: pairs with the Release of `request_wake`.
            if self.wake_requested.swap(false, Acquire) {
                self.task.wake();
            }
        }
    }
}

/// The clock of a timer, for the wheel of a queue.
#[derive(Debug)]
struct ClockOf(Timer);

impl ClockOf {
    fn clock(&self) -> &dyn Clock {
        self.0.wheel().clock()
    }
}

impl Clock for ClockOf {
    fn now(&self) -> Instant {
        self.clock().now()
    }

    fn lag(&self) -> Duration {
        self.clock().lag()
    }

    fn is_cacheable(&self) -> bool {
        self.clock().is_cacheable()
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        self.clock().timeout(deadline)
    }

    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        self.clock().subscribe(wake);
    }
}

impl<T: Send> DelayQueue<T> {
    /// An empty queue on a wheel as `builder` says, by the clock of `timer`, which wakes whoever
    /// polls the stream. (A clock and a waker that the builder was given are not used.)
    ///
    /// The wheel has one shard unless the builder says otherwise: more are for a queue into which
    /// many threads insert at a time, at the price of memory and of slower polls.
    ///
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new(timer: &Timer, builder: Builder) -> Result<Self, BuildError> {
        let stream = Arc::new(StreamTask::default());
        let waker = Arc::clone(&stream);
        let builder = builder.clock(ClockOf(timer.share())).waker(move || waker.request_wake());
        let (wheel, sweeper) = builder.or_shards(1).build()?;
        let sleep = timer.sleep_until(timer.now());
        let handle = DelayQueueHandle::new(wheel, stream);
        Ok(Self { sweeper, sleep, budget: Budget::default(), handle })
    }

    /// The next value whose time has come; `None` at the end of the stream.
    ///
    /// O(1) for a value that lies first in its slot. A poll also meets the names that removals and
    /// resets have left in the slots whose turn has come, and does a share of the wheel's upkeep.
    /// Both are bounded, by some thousand names; where there are more, the poll wakes the task and
    /// returns `Pending`, and the next one goes on. After 64 values in a row it does that too.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        ready!(self.budget.poll_left(context.waker()));
        let polled = self.poll_sweep(context);
        self.budget.counted(polled)
    }

    fn poll_sweep(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.handle.stream.task.register(context.waker());
        let mut expired = None;
        let sweep = self.sweeper.sweep_some(1, |timer| expired = Some(timer));
        if expired.is_some() || self.has_ended() {
            return Poll::Ready(expired);
        }
        if !sweep.finished {
            // It has met as many names as it may. The sleep would be a tick late.
            return yield_once(context.waker());
        }
        // The wheel's range of deadlines moves with the sweeps.
        let latest = self.handle.wheel.clock().now() + self.sweeper.longest_rest();
        self.sleep.reset(sweep.next_deadline.map_or(latest, |next| next.min(latest)));
        match ready!(self.sleep.poll_over_capacity(context)) {
            // The wheel wants upkeep. Or the timer's entries or its memory are used up, which is as
            // good as never: it has room again when one of its sleeps ends, and notifies no other
            // of that.
            Ok(()) | Err(Refusal::AtCapacity { .. } | Refusal::OutOfMemory) => {
                yield_once(context.waker())
            }
            Err(_) => {
                // Nobody would take out what came after this.
                self.handle.wheel.close();
                Poll::Ready(None)
            }
        }
    }

    /// Whether nothing is left, and nothing more can come.
    fn has_ended(&self) -> bool {
        let DelayQueueHandle { wheel, stream } = &self.handle;
        let alone = self.handle.is_alone();
        if !alone && !wheel.is_closed() {
            return false;
        }
        // SeqCst: the wheel is seen closed, then what is armed is counted; against an insert, which
        // counts itself, passes a fence and looks whether the wheel is closed (`recheck_closed`).
        fence(SeqCst);
        let left = wheel.len();
        if alone {
            // Relaxed: nobody else uses the queue now, which is borrowed exclusively, and whoever
            // removes from it next comes after this borrow.
            stream.remaining.store(left, Relaxed);
        }
        left == 0
    }
}

impl<T: Send> DelayQueueHandle<T> {
    fn new(wheel: Wheel<T>, stream: Arc<StreamTask>) -> Self {
        // Relaxed: whoever makes a handle has one, or is the queue's maker.
        stream.handles.fetch_add(1, Relaxed);
        Self { wheel, stream }
    }

    /// Puts a value into the queue that comes out `delay` from now. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert`]; the value comes back.
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        self.and_wake(|wheel| self.recheck_closed(wheel.insert(value, delay)))
    }

    /// As [`insert`](Self::insert), at `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert_at`]; the value comes back.
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.and_wake(|_| self.insert_without_wake(value, deadline))
    }

    /// Takes a value out before its time: if and only if it has not come out, and never will.
    /// O(1), lock-free.
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.and_wake(|_| self.cancel_without_wake(id))
    }

    /// As [`cancel`](Self::cancel), with the deadline. O(1), lock-free.
    pub fn cancel_with_deadline(&self, id: TimerId) -> Option<Unfired<T>> {
        self.and_wake(|wheel| wheel.cancel_with_deadline(id).inspect(|_| self.note_removal()))
    }

    pub(super) fn insert_without_wake(
        &self,
        value: T,
        deadline: Instant,
    ) -> Result<TimerId, InsertError<T>> {
        self.recheck_closed(self.wheel.insert_at(value, deadline))
    }

    pub(super) fn cancel_without_wake(&self, id: TimerId) -> Option<T> {
        self.wheel.cancel(id).inspect(|_| self.note_removal())
    }

    /// Sets when a value comes out to `delay` from now, earlier or later; whether it was still in
    /// the queue. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset`]; it keeps its deadline.
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.and_wake(|wheel| wheel.reset(id, delay))
    }

    /// As [`reset`](Self::reset), to `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset_at`]; it keeps its deadline.
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        self.and_wake(|wheel| wheel.reset_at(id, deadline))
    }

    /// When a value comes out, rounded up to the wheel's resolution; `None` if it is not in the
    /// queue. As [`Wheel::deadline`] while another thread resets it.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        self.wheel.deadline(id)
    }

    /// When the next value comes out; `None` if the queue is empty. O(entries of the wheel): for a
    /// look, not for each turn.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::future::DelayQueue;
    ///
    /// let retries = DelayQueue::default();
    /// retries.insert("later", Duration::from_secs(9))?;
    /// let soon = retries.insert("soon", Duration::from_secs(5))?;
    /// assert_eq!(retries.peek(), retries.deadline(soon));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn peek(&self) -> Option<Instant> {
        self.wheel.snapshot().next
    }

    /// How many values are in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether no value is in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Takes all values out. O(entries of the wheel).
    pub fn drain(&self) -> Vec<Unfired<T>> {
        self.and_wake(|wheel| {
            let drained = wheel.drain();
            match self.is_alone() {
                true => self.stream.request_wake(),
                false => self.request_wake_if_closed(),
            }
            drained
        })
    }

    /// Drops all values.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Takes no more values: the stream ends with the last of those that are in the queue.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{DelayQueue, Timer};
    ///
    /// let timer = Timer::spawn(Builder::new().driver())?;
    /// let mut queue = DelayQueue::new(&timer, Builder::new())?;
    /// queue.insert("last", Duration::from_millis(2))?;
    /// queue.close();
    /// assert!(queue.insert("too late", Duration::ZERO).is_err());
    /// pollster::block_on(async {
    ///     let last = poll_fn(|context| queue.poll_expired(context)).await;
    ///     assert_eq!(last.map(|expired| expired.value), Some("last"));
    ///     assert_eq!(poll_fn(|context| queue.poll_expired(context)).await, None);
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.and_wake(Wheel::close);
    }

    /// A snapshot of what the queue's wheel counts.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.wheel.metrics()
    }

    /// Another handle, for another thread. The stream does not end while there is one.
    #[must_use]
    pub fn handle(&self) -> DelayQueueHandle<T> {
        Self::new(self.wheel.clone(), Arc::clone(&self.stream))
    }

    /// Whether there is no handle but the queue's own.
    fn is_alone(&self) -> bool {
        // Acquire: pairs with the Release of a handle's drop, so that its inserts are counted.
        self.stream.handles.load(Acquire) == 1
    }

    /// After a removal: rings for a stream that may end by it.
    ///
    /// Without another handle there is no race with the stream's look at its end: whoever removes
    /// borrows the queue that the stream is polled by. So its last poll has counted what was left.
    /// (A handle that was there at that poll rings when it goes.)
    #[inline]
    fn note_removal(&self) {
        if !self.is_alone() {
            self.request_wake_if_closed();
        // Relaxed: of several removals one is the last, and the poll that it brings about comes
        // after all of them, by the borrow.
        } else if self.stream.remaining.fetch_sub(1, Relaxed) == 1 {
            self.stream.request_wake();
        }
    }

    /// Rings for a stream whose queue is closed, and which may be empty now.
    fn request_wake_if_closed(&self) {
        // SeqCst: the end of a timer was counted, then the wheel is seen open; against the closer,
        // who closes it, passes a fence of its own and wakes the stream, which counts.
        fence(SeqCst);
        if self.wheel.is_closed() {
            self.stream.request_wake();
        }
    }

    /// What came of an insert, once more in order with a close: the stream counts what is armed,
    /// and not by looking at each timer as a drain does.
    #[inline]
    fn recheck_closed(
        &self,
        inserted: Result<TimerId, InsertError<T>>,
    ) -> Result<TimerId, InsertError<T>> {
        let kept = inserted.and_then(|id| {
            // SeqCst: the timer is counted, then the wheel is seen open; against the stream, which
            // sees it closed, passes a fence of its own and counts.
            fence(SeqCst);
            let closed = self.wheel.is_closed();
            match closed.then(|| self.wheel.cancel(id)).flatten() {
                Some(value) => Err(InsertError { reason: Refusal::Closed, value }),
                None => Ok(id),
            }
        });
        // One that is refused may have been counted for a moment, and have kept the stream from its
        // end.
        kept.inspect_err(|_| self.request_wake_if_closed())
    }

    /// Wakes the stream's task after an operation that has rung for it.
    #[inline]
    fn and_wake<R>(&self, operation: impl FnOnce(&Wheel<T>) -> R) -> R {
        let done = operation(&self.wheel);
        self.stream.wake_if_requested();
        done
    }
}

/// For the drop of what holds the wake-up back, whatever the values are.
impl<T> DelayQueueHandle<T> {
    /// Wakes the stream's task, if an operation has rung for it.
    pub(super) fn wake_if_requested(&self) {
        self.stream.wake_if_requested();
    }
}

impl<T> Deref for DelayQueue<T> {
    type Target = DelayQueueHandle<T>;

    fn deref(&self) -> &DelayQueueHandle<T> {
        &self.handle
    }
}

impl<T: Send> Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.poll_expired(context)
    }
}

/// No field is ever pinned.
impl<T> Unpin for DelayQueue<T> {}

impl<T> Drop for DelayQueue<T> {
    fn drop(&mut self) {
        // Nobody polls any more. Handles may live on: the values must not wait for them.
        drop(self.handle.stream.task.take());
        self.handle.wheel.close();
        drop(self.handle.wheel.drain());
    }
}

impl<T> Drop for DelayQueueHandle<T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the stream's look at its end. Acquire: keeps the
        // chain over several handles.
        if self.stream.handles.fetch_sub(1, AcqRel) == 2 {
            self.stream.request_wake();
            self.stream.wake_if_requested();
        }
    }
}

impl<T: Send> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Send> fmt::Debug for DelayQueueHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueueHandle").field("len", &self.len()).finish_non_exhaustive()
    }
}
