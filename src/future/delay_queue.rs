//! [`DelayQueue`]: values that come out of a stream, each when its time has come.
//!
//! The queue is a wheel of its own, which whoever polls the stream sweeps; one [`Sleep`] of a
//! [`Timer`] wakes it for the next sweep. Nothing is handed from thread to thread but that
//! wake-up. An insert that is due before it rings the wheel's waker; that runs in the midst of a
//! verb, and so only notes that it rang, and the verb's caller wakes the stream's task after it.

#![forbid(unsafe_code)]

use super::sleep::Sleep;
use super::timer::Timer;
use crate::sync::{AcqRel, Acquire, AtomicBool, AtomicUsize, Relaxed, Release};
use crate::{
    Armed, BeyondRange, BuildError, Builder, Clock, Expired, InsertError, Sweeper, TimerId, Wheel,
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
/// The names are those of tokio-util's `DelayQueue`. Here any thread may insert, remove and reset,
/// through `&self` or a [handle](Self::handle), without a lock, while the stream is polled; and an
/// id that is stale answers so and does not panic.
///
/// The stream ends when the queue is empty and no handle is left to insert into it, or it was
/// [closed](DelayQueueHandle::close); or when its timer was shut down, whatever is left then being
/// for [`drain`](DelayQueueHandle::drain). Values of the same tick come in no particular order. A
/// queue has a wheel of its own, some dozens of kilobytes for each shard.
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
/// let mut queue = DelayQueue::new(&timer, Builder::new().shards(1))?;
/// queue.insert("retry", Duration::from_millis(5))?;
/// let given_up = queue.insert("give up", Duration::from_secs(5))?;
///
/// let handle = queue.handle(); // for any thread
/// assert_eq!(handle.remove(given_up).map(|armed| armed.value), Some("give up"));
/// drop(handle);
///
/// pollster::block_on(async {
///     // `StreamExt::next` does the same.
///     let retry = poll_fn(|context| queue.poll_expired(context)).await;
///     assert_eq!(retry.map(|expired| expired.value), Some("retry"));
///     assert_eq!(poll_fn(|context| queue.poll_expired(context)).await, None);
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DelayQueue<T: Send> {
    sweeper: Sweeper<T>,
    sleep: Sleep,
    handle: DelayQueueHandle<T>,
}

/// Inserts into a [`DelayQueue`], removes and resets, from any thread; made by
/// [`DelayQueue::handle`]. The queue itself is used in the same way.
pub struct DelayQueueHandle<T: Send> {
    wheel: Wheel<T>,
    stream: Arc<StreamBell>,
}

/// Wakes the task that polls the stream.
#[derive(Default)]
struct StreamBell {
    /// Set when the stream is to be polled; cleared by who then wakes its task.
    rung: AtomicBool,
    task: AtomicWaker,
    /// How many handles there are, the queue's own included.
    handles: AtomicUsize,
}

impl StreamBell {
    /// Notes that the stream is to be polled.
    fn ring(&self) {
        // Release: pairs with the Acquire of `answer`: who wakes the task has what rang behind it.
        self.rung.store(true, Release);
    }

    /// Wakes the task, if the bell has rung.
    #[inline]
    fn answer(&self) {
        // Relaxed: the ringer is this thread, or one that will come here itself.
        if self.rung.load(Relaxed) {
            // Acquire: pairs with the Release of `ring`.
            if self.rung.swap(false, Acquire) {
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

    fn is_leased(&self) -> bool {
        self.clock().is_leased()
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
    /// # Errors
    ///
    /// As [`Builder::build`].
    pub fn new(timer: &Timer, builder: Builder) -> Result<Self, BuildError> {
        let stream = Arc::new(StreamBell::default());
        let bell = Arc::clone(&stream);
        let builder = builder.clock(ClockOf(timer.share())).waker(move || bell.ring());
        let (wheel, sweeper) = builder.build()?;
        let sleep = timer.sleep_until(timer.now());
        Ok(Self { sweeper, sleep, handle: DelayQueueHandle::new(wheel, stream) })
    }

    /// A handle for another thread. The stream does not end while there is one.
    #[must_use]
    pub fn handle(&self) -> DelayQueueHandle<T> {
        self.handle.clone()
    }

    /// The next value whose time has come; `None` at the end of the stream.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.handle.stream.task.register(context.waker());
        loop {
            let mut expired = None;
            let sweep = self.sweeper.sweep_some(1, |timer| expired = Some(timer));
            if expired.is_some() || self.has_ended() {
                return Poll::Ready(expired);
            }
            let Some(next) = sweep.next_deadline else {
                return Poll::Pending;
            };
            self.sleep.reset(next);
            if ready!(Pin::new(&mut self.sleep).poll(context)).is_err() {
                return Poll::Ready(None);
            }
        }
    }

    /// Whether nothing is left, and nothing more can come.
    fn has_ended(&self) -> bool {
        let wheel = &self.handle.wheel;
        // Acquire: pairs with the Release of a handle's drop, so that its inserts are counted.
        let alone = self.handle.stream.handles.load(Acquire) == 1;
        (alone || wheel.is_closed()) && wheel.is_empty()
    }
}

impl<T: Send> DelayQueueHandle<T> {
    fn new(wheel: Wheel<T>, stream: Arc<StreamBell>) -> Self {
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
        self.then_wake(|wheel| wheel.insert(value, delay))
    }

    /// As [`insert`](Self::insert), at `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert_at`]; the value comes back.
    pub fn insert_at(&self, value: T, deadline: Instant) -> Result<TimerId, InsertError<T>> {
        self.then_wake(|wheel| wheel.insert_at(value, deadline))
    }

    /// Takes a value out before its time: if and only if it has not come out, and never will.
    /// O(1), lock-free.
    pub fn remove(&self, id: TimerId) -> Option<Armed<T>> {
        self.then_wake(|wheel| {
            let taken = wheel.take(id);
            self.perhaps_the_last();
            taken
        })
    }

    /// Sets when a value comes out to `delay` from now, earlier or later; whether it was still in
    /// the queue. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset`]; it keeps its deadline.
    pub fn reset(&self, id: TimerId, delay: Duration) -> Result<bool, BeyondRange> {
        self.then_wake(|wheel| wheel.reset(id, delay))
    }

    /// As [`reset`](Self::reset), to `deadline`.
    ///
    /// # Errors
    ///
    /// As [`Wheel::reset_at`]; it keeps its deadline.
    pub fn reset_at(&self, id: TimerId, deadline: Instant) -> Result<bool, BeyondRange> {
        self.then_wake(|wheel| wheel.reset_at(id, deadline))
    }

    /// When a value comes out, rounded up to the wheel's resolution; `None` if it is not in the
    /// queue.
    #[must_use]
    pub fn deadline(&self, id: TimerId) -> Option<Instant> {
        self.wheel.deadline(id)
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
    pub fn drain(&self) -> Vec<Armed<T>> {
        self.then_wake(|wheel| {
            let drained = wheel.drain();
            self.perhaps_the_last();
            drained
        })
    }

    /// Drops all values.
    pub fn clear(&self) {
        drop(self.drain());
    }

    /// Takes no more values: the stream ends with the last of those that are in the queue.
    pub fn close(&self) {
        self.then_wake(Wheel::close);
    }

    /// The wheel, for its metrics.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<T> {
        &self.wheel
    }

    /// The stream of a queue that is closed ends when it is empty.
    fn perhaps_the_last(&self) {
        if self.wheel.is_closed() {
            self.stream.ring();
        }
    }

    /// Wakes the stream's task after a verb that has rung for it.
    #[inline]
    fn then_wake<R>(&self, verb: impl FnOnce(&Wheel<T>) -> R) -> R {
        let answer = verb(&self.wheel);
        self.stream.answer();
        answer
    }
}

impl<T: Send> Deref for DelayQueue<T> {
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

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), None)
    }
}

/// No field is ever pinned.
impl<T: Send> Unpin for DelayQueue<T> {}

impl<T: Send> Drop for DelayQueue<T> {
    fn drop(&mut self) {
        // Handles may live on: the values must not wait for them.
        self.handle.close();
        self.handle.clear();
    }
}

impl<T: Send> Clone for DelayQueueHandle<T> {
    fn clone(&self) -> Self {
        Self::new(self.wheel.clone(), Arc::clone(&self.stream))
    }
}

impl<T: Send> Drop for DelayQueueHandle<T> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the stream's look at its end. Acquire: keeps the
        // chain over several handles.
        if self.stream.handles.fetch_sub(1, AcqRel) == 2 {
            self.stream.ring();
            self.stream.answer();
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
