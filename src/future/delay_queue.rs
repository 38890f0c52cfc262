//! [`DelayQueue`]: a stream that yields each value when its delay has passed.
//!
//! The queue has a wheel of its own, which is swept by polls of the stream. One [`Sleep`] of a
//! [`Timer`] wakes the stream's task for the next sweep. Only that wake-up crosses threads. An
//! insert that is due before the next sweep calls the wheel's waker. That happens in the middle of
//! an operation, so the waker only requests a wake-up, and the operation's caller wakes the
//! stream's task afterwards. Values pass through no second queue, and no thread is needed. The
//! queue has one consumer, and therefore one shard unless its builder sets another number.

#![forbid(unsafe_code)]

use super::budget::{Budget, yield_once};
use super::sleep::Sleep;
use super::timer::Timer;
use crate::discard::discard_by;
use crate::panics::DropEach;
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

/// A queue whose values come out one by one, each when its delay has passed. It is a [`Stream`] of
/// [`Expired`].
///
/// It works like tokio-util's `DelayQueue`, whose `remove` is called
/// [`cancel`](DelayQueueHandle::cancel) here. Any thread may insert, cancel and reset while the
/// stream is polled, without a lock, through `&self` or a [handle](DelayQueueHandle). A stale id is
/// reported and does not panic.
///
/// The stream ends when the queue is empty and either no handle is left to insert into it or it was
/// [closed](DelayQueueHandle::close). It also ends when its timer was shut down. The queue then
/// closes itself, and [`drain`](DelayQueueHandle::drain) returns the remaining values.
///
/// Values of the same tick come in no particular order.
///
/// A queue takes one place of its timer's capacity when it is created, and is not refused later. A
/// timer at its capacity may therefore have one sleep more for each of its queues.
///
/// A queue has a wheel of its own, so that a server can have one for each session. It takes some 6
/// KiB with one value, and up to 11 KiB more when it has been in use for long. The wheel has one
/// shard unless the builder sets another number.
///
/// No poll holds its task for long. After 64 values in a row the stream wakes its task and returns
/// `Pending` once, so that a queue with many expired values does not starve other tasks.
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

/// A handle that inserts into a [`DelayQueue`], cancels and resets, from any thread.
///
/// It is created by [`handle`](Self::handle). The queue itself has the same methods.
///
/// # Examples
///
/// A thread that inserts while a task takes values out:
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

/// The task that polls the stream.
#[derive(Default)]
struct StreamTask {
    /// Set when the stream is to be polled, and cleared by the thread that then wakes its task.
    wake_requested: AtomicBool,
    task: AtomicWaker,
    /// The number of handles, including the queue's own.
    handles: AtomicUsize,
    /// The number of removals that empty the queue, while it has no handle but its own. Each poll
    /// that finds it so and is `Pending` sets the number, and removals count it down. Inserts do
    /// not count, so the stream may be woken too early and sets the number again. It has no meaning
    /// before the first such poll, when the stream does not wait, and after it was counted down,
    /// when the stream was woken.
    remaining: AtomicUsize,
}

impl StreamTask {
    /// Requests that the stream is polled.
    fn request_wake(&self) {
        // Release: pairs with the Acquire of `wake_if_requested`, so that the thread that wakes the
        // task has everything that was done before the request. It is an exchange, so that each of
        // several requests is seen.
        self.wake_requested.swap(true, Release);
    }

    /// Wakes the task if a wake-up was requested.
    ///
    /// One thread wakes the task for all requests up to that time. If it is preempted on the way,
    /// the wake-up waits for it, as it would inside any waker that is passed from thread to thread.
    #[inline]
    fn wake_if_requested(&self) {
        // Relaxed: the request was made by this thread, or by a thread that will call this itself.
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
    /// Creates an empty queue on a wheel that is configured by `builder`. It uses the clock of
    /// `timer`, which also wakes the task that polls the stream.
    ///
    /// The builder's own clock and waker are not used. The wheel has one shard unless the builder
    /// sets another number. Choose more shards if many threads insert at the same time, at the
    /// price of memory and slower polls.
    ///
    /// # Errors
    ///
    /// Fails like [`Builder::build`], and if `timer` [refuses](BuildError::Refused) the queue a
    /// place.
    pub fn new(timer: &Timer, builder: Builder) -> Result<Self, BuildError> {
        let stream = Arc::new(StreamTask::default());
        let waker = Arc::clone(&stream);
        let builder = builder.clock(ClockOf(timer.share())).waker(move || waker.request_wake());
        let (wheel, sweeper) = builder.or_shards(1).or_small().build()?;
        let mut sleep = timer.sleep(sweeper.longest_rest());
        sleep.take_place().map_err(BuildError::Refused)?;
        let handle = DelayQueueHandle::new(wheel, stream);
        Ok(Self { sweeper, sleep, budget: Budget::default(), handle })
    }

    /// Polls for the next expired value. Returns `None` at the end of the stream.
    ///
    /// O(1) for a value that is the first in its slot. A poll also visits the references that
    /// removals and resets have left in the expired slots, and does a share of the wheel's upkeep.
    /// Both are bounded by some thousand references. If there are more, the poll wakes the task and
    /// returns `Pending`, and the next one continues. It does the same after 64 values in a row.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        ready!(self.budget.poll_ready(context.waker()));
        let polled = self.poll_sweep(context);
        self.budget.count(polled)
    }

    fn poll_sweep(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.handle.stream.task.register(context.waker());
        let mut expired = None;
        let sweep = self.sweeper.sweep_some(1, |timer| expired = Some(timer));
        if expired.is_some() || self.has_ended() {
            return Poll::Ready(expired);
        }
        if !sweep.finished {
            // The sweep has visited as many references as it may. The sleep would be a tick late.
            return yield_once(context.waker());
        }
        // The wheel's range of deadlines moves with the sweeps.
        let latest = self.handle.wheel.clock().now() + self.sweeper.longest_rest();
        self.sleep.reset(sweep.next_deadline.map_or(latest, |next| next.min(latest)));
        match ready!(self.sleep.poll_admitted(context)) {
            // The wheel wants upkeep. Or the timer's entries or its memory are used up, which may
            // last indefinitely: there is room again when one of its sleeps ends, but no other is
            // notified of that.
            Ok(()) | Err(Refusal::AtCapacity { .. } | Refusal::OutOfMemory) => {
                yield_once(context.waker())
            }
            Err(_) => {
                // No poll would take out a value that came after this.
                self.handle.wheel.close();
                Poll::Ready(None)
            }
        }
    }

    /// Returns `true` if no value is left and none can come.
    fn has_ended(&self) -> bool {
        let DelayQueueHandle { wheel, stream } = &self.handle;
        let alone = self.handle.is_alone();
        if !alone && !wheel.is_closed() {
            return false;
        }
        // SeqCst: this thread sees the wheel closed, then counts the armed timers. Its counterpart
        // is an insert, which counts itself, passes a fence and checks whether the wheel is closed
        // (`recheck_closed`).
        fence(SeqCst);
        let left = wheel.len();
        if alone {
            // Relaxed: the queue is borrowed exclusively and no other thread uses it now. The next
            // removal comes after this borrow.
            stream.remaining.store(left, Relaxed);
        }
        left == 0
    }
}

impl<T: Send> DelayQueueHandle<T> {
    fn new(wheel: Wheel<T>, stream: Arc<StreamTask>) -> Self {
        // Relaxed: the caller has a handle, or is creating the queue.
        stream.handles.fetch_add(1, Relaxed);
        Self { wheel, stream }
    }

    /// Inserts a value that comes out `delay` from now. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert`] and returns the value.
    pub fn insert(&self, value: T, delay: Duration) -> Result<TimerId, InsertError<T>> {
        self.and_wake(|wheel| self.recheck_closed(wheel.insert(value, delay)))
    }

    /// Inserts a value that comes out at `deadline`, like [`insert`](Self::insert).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert_at`] and returns the value.
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.and_wake(|_| self.insert_without_wake(value, deadline))
    }

    /// Removes a value before its deadline. Returns it if and only if it has not come out and never
    /// will. O(1), lock-free.
    pub fn cancel(&self, id: TimerId) -> Option<T> {
        self.and_wake(|_| self.cancel_without_wake(id))
    }

    /// Removes a value like [`cancel`](Self::cancel), and returns it with its deadline. O(1),
    /// lock-free.
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

    /// Sets the deadline of a value to `delay` from now, earlier or later. Returns `true` if it was
    /// still in the queue. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::reset`]. The value keeps its deadline.
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.and_wake(|wheel| wheel.reset(id, delay))
    }

    /// Sets the deadline of a value to `deadline`, like [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::reset_at`]. The value keeps its deadline.
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        self.and_wake(|wheel| wheel.reset_at(id, deadline))
    }

    /// Returns the deadline of a value, rounded up to the wheel's resolution, or `None` if it is
    /// not in the queue. While another thread resets it, see [`Wheel::deadline`].
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        self.wheel.deadline(id)
    }

    /// Returns the earliest deadline, or `None` if the queue is empty. O(entries of the wheel), so
    /// it is for diagnosis and not for each turn of a loop.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Builder;
    /// use tourbillon::future::{DelayQueue, default_timer};
    ///
    /// let retries = DelayQueue::new(&default_timer(), Builder::new())?;
    /// retries.insert("later", Duration::from_secs(9))?;
    /// let soon = retries.insert("soon", Duration::from_secs(5))?;
    /// assert_eq!(retries.peek(), retries.deadline(soon));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn peek(&self) -> Option<Instant> {
        self.wheel.snapshot().next
    }

    /// Returns the number of values in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Returns `true` if the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Removes all values. O(entries of the wheel).
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
        discard_and_resume(self.drain());
    }

    /// Closes the queue to new values. The stream ends with the last value that is in the queue.
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

    /// Returns a snapshot of the counters of the queue's wheel.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.wheel.metrics()
    }

    /// Returns another handle, for another thread. The stream does not end as long as the handle
    /// exists.
    #[must_use]
    pub fn handle(&self) -> DelayQueueHandle<T> {
        Self::new(self.wheel.clone(), Arc::clone(&self.stream))
    }

    /// Returns `true` if the queue's own handle is the only one.
    fn is_alone(&self) -> bool {
        // Acquire: pairs with the Release of a handle's drop, so that its inserts are counted.
        self.stream.handles.load(Acquire) == 1
    }

    /// Requests a wake-up after a removal, if it may have ended the stream.
    ///
    /// Without another handle, a removal does not race with the stream's check for its end, because
    /// a removal and a poll both borrow the queue. The last poll has therefore counted the
    /// remaining values. A handle that existed at that poll requests a wake-up when it is dropped.
    #[inline]
    fn note_removal(&self) {
        if !self.is_alone() {
            self.request_wake_if_closed();
        // Relaxed: one of several removals is the last, and the poll that it causes comes after all
        // of them, by the borrow.
        } else if self.stream.remaining.fetch_sub(1, Relaxed) == 1 {
            self.stream.request_wake();
        }
    }

    /// Requests a wake-up if the queue is closed, because it may be empty now.
    fn request_wake_if_closed(&self) {
        // SeqCst: the end of a timer was counted, then this thread sees the wheel open. Its
        // counterpart closes the wheel, passes a fence of its own and wakes the stream, which
        // counts.
        fence(SeqCst);
        if self.wheel.is_closed() {
            self.stream.request_wake();
        }
    }

    /// Cancels the timer of an insert if the wheel was closed meanwhile, and returns the outcome.
    /// The wheel's own check relies on a drain that exchanges the state of each entry. The stream
    /// only counts the armed timers.
    #[inline]
    fn recheck_closed(
        &self,
        inserted: Result<TimerId, InsertError<T>>,
    ) -> Result<TimerId, InsertError<T>> {
        let rechecked = inserted.and_then(|id| {
            // SeqCst: the timer is counted, then this thread sees the wheel open. Its counterpart
            // is the stream, which sees the wheel closed, passes a fence of its own and counts.
            fence(SeqCst);
            let closed = self.wheel.is_closed();
            match closed.then(|| self.wheel.cancel(id)).flatten() {
                Some(value) => Err(InsertError { reason: Refusal::Closed, value }),
                None => Ok(id),
            }
        });
        // A refused timer may have been counted for a moment, and have kept the stream from its
        // end.
        rechecked.inspect_err(|_| self.request_wake_if_closed())
    }

    /// Runs an operation, then wakes the stream's task if the operation requested it.
    #[inline]
    fn and_wake<R>(&self, operation: impl FnOnce(&Wheel<T>) -> R) -> R {
        let done = operation(&self.wheel);
        self.stream.wake_if_requested();
        done
    }
}

/// Methods without the bound on `T`, so that `Drop` implementations can call them.
impl<T> DelayQueueHandle<T> {
    /// Wakes the stream's task if an operation requested it.
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
        // The stream is not polled any more. Handles may live on, and the values must not wait for
        // them.
        drop(self.handle.stream.task.take());
        self.handle.wheel.close();
        discard_and_resume(self.handle.wheel.drain());
    }
}

/// Discards values for a caller, which gets the first panic of their destructors.
fn discard_and_resume<T>(values: Vec<Unfired<T>>) {
    let mut each = DropEach::default();
    discard_by(values, |value| each.drop_one(value));
}

impl<T> Drop for DelayQueueHandle<T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the stream's check for its end. Acquire: keeps the
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

#[cfg(all(test, not(modelled)))]
mod tests {
    use super::*;
    use crate::ManualClock;
    use crate::exhaust;
    use std::task::{Wake, Waker};

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn a_queue_whose_timer_has_no_memory_polls_until_it_has() {
        let (tick, clock) = (Duration::from_millis(1), ManualClock::new());
        let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
        let mut queue = DelayQueue::new(&Timer::new(wheel), Builder::new()).unwrap();
        queue.insert(7, tick).unwrap();
        queue.insert(8, tick * 100).unwrap();
        let wakes = Arc::new(Wakes::default());
        let task = Waker::from(Arc::clone(&wakes));
        let mut poll = || {
            let polled = queue.poll_expired(&mut Context::from_waker(&task));
            (polled.map(|timer| timer.map(|timer| timer.value)), wakes.0.swap(0, Relaxed))
        };
        assert_eq!(poll(), (Poll::Pending, 0));
        clock.advance(tick);
        assert_eq!(sweeper.sweep(|timer| timer.value.wake()).expired, 1);
        assert_eq!(poll(), (Poll::Ready(Some(7)), 1));
        // The slot of the next sleep is in another row.
        exhaust(true);
        for _ in 0..3 {
            assert_eq!(poll(), (Poll::Pending, 1));
        }
        exhaust(false);
        assert_eq!(poll(), (Poll::Pending, 0));
        clock.advance(tick * 99);
        assert_eq!(sweeper.sweep(|timer| timer.value.wake()).expired, 1);
        assert_eq!(poll(), (Poll::Ready(Some(8)), 1));
    }
}
