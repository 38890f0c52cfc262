//! Timed streams: a timeout for each item, a minimum distance between items, and chunks.

#![forbid(unsafe_code)]

use super::grace::Grace;
use super::repeating::Repeating;
use super::sleep::Sleep;
use super::timeout::TimeoutError;
use super::timer::Timer;
use crate::Refusal;
use futures_core::Stream;
use pin_project_lite::pin_project;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

impl Timer {
    /// Returns the items of `stream`, and an error whenever it has had none for `delay`.
    ///
    /// The time counts from the poll that found no item, and restarts after an error. Like a
    /// [`Timeout`](super::Timeout), it polls `stream` once more before it reports an error. A
    /// refusal of the timer is reported once. After [`Refusal::Closed`] the items come without
    /// timeouts, and after [`Refusal::AtCapacity`] the time counts beyond the timer's capacity.
    ///
    /// tokio-stream calls this `timeout_repeating`. End the loop at the first error to get its
    /// `timeout`.
    pub fn timeout_stream<S: Stream>(&self, delay: Duration, stream: S) -> ItemTimeout<S> {
        let (repeating, grace) = (Repeating::new(self.sleep(delay)), Grace::default());
        ItemTimeout { stream, delay, repeating, grace, waits: false }
    }

    /// Returns the items of `stream`, each at least `delay` after the previous one.
    ///
    /// It polls `stream` for an item only when it may return one, so it never holds an item back
    /// itself. If the timer refuses to wait, it returns an error, and the next item comes at once.
    pub fn throttle<S: Stream>(&self, delay: Duration, stream: S) -> Throttle<S> {
        Throttle { stream, delay, sleep: self.sleep(delay), rests: false }
    }

    /// Returns the items of `stream` in chunks.
    ///
    /// A chunk has `most` items, or the items that have come when `delay` has passed since its
    /// first item. The last chunk has the rest. The time is checked when `stream` has no item
    /// ready. If the timer refuses to wait, a chunk has the items that are ready at once.
    pub fn chunks_timeout<S: Stream>(
        &self,
        most: NonZeroUsize,
        delay: Duration,
        stream: S,
    ) -> ChunksTimeout<S> {
        let (sleep, items) = (self.sleep(delay), Vec::new());
        ChunksTimeout { stream: Some(stream), most: most.get(), delay, sleep, items }
    }
}

pin_project! {
    /// A stream with a timeout for each item; created by [`Timer::timeout_stream`].
    ///
    /// # Examples
    ///
    /// A peer that falls silent, in virtual time:
    ///
    /// ```
    /// use futures_core::Stream;
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::future::TimeoutError;
    /// use tourbillon::testing::block_on;
    ///
    /// let silent = block_on(|timer| async move {
    ///     let hour = Duration::from_secs(3600);
    ///     let ticks = timer.interval(hour).unwrap();
    ///     let mut ticks = pin!(timer.timeout_stream(hour / 2, ticks));
    ///     let mut next = async || std::future::poll_fn(|cx| ticks.as_mut().poll_next(cx)).await;
    ///     assert!(matches!(next().await, Some(Ok(_))), "the first tick comes at once");
    ///     next().await
    /// });
    /// assert!(matches!(silent, Some(Err(TimeoutError::Elapsed))));
    /// ```
    #[derive(Debug)]
    #[must_use = "a stream does nothing unless it is polled"]
    pub struct ItemTimeout<S> {
        #[pin]
        stream: S,
        delay: Duration,
        repeating: Repeating,
        grace: Grace,
        // Set if the last poll found no item.
        waits: bool,
    }
}

impl<S: Stream> Stream for ItemTimeout<S> {
    type Item = Result<S::Item, TimeoutError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if let Poll::Ready(item) = this.stream.poll_next(context) {
            *this.waits = false;
            return Poll::Ready(item.map(Ok));
        }
        if !std::mem::replace(this.waits, true) {
            this.repeating.sleep.reset_after(*this.delay);
        }
        let polled = this.repeating.poll(context);
        let slept = ready!(this.grace.delay(polled, &this.repeating.sleep, context));
        *this.waits = false;
        let error = slept.map_or_else(TimeoutError::Refused, |()| TimeoutError::Elapsed);
        Poll::Ready(Some(Err(error)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.stream.size_hint().0, None)
    }
}

pin_project! {
    /// A stream with a minimum distance between its items; created by [`Timer::throttle`].
    ///
    /// # Examples
    ///
    /// ```
    /// use futures_core::Stream;
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::testing::block_on;
    ///
    /// let took = block_on(|timer| async move {
    ///     let start = timer.now();
    ///     let fast = timer.interval(Duration::from_secs(1)).unwrap();
    ///     let mut slow = pin!(timer.throttle(Duration::from_secs(60), fast));
    ///     for _ in 0..3 {
    ///         let _tick = std::future::poll_fn(|cx| slow.as_mut().poll_next(cx)).await;
    ///     }
    ///     timer.now() - start
    /// });
    /// assert_eq!(took, Duration::from_secs(120));
    /// ```
    #[derive(Debug)]
    #[must_use = "a stream does nothing unless it is polled"]
    pub struct Throttle<S> {
        #[pin]
        stream: S,
        delay: Duration,
        sleep: Sleep,
        // Set if it is too early for the next item.
        rests: bool,
    }
}

impl<S: Stream> Stream for Throttle<S> {
    type Item = Result<S::Item, Refusal>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.project();
        if *this.rests {
            let slept = ready!(Pin::new(&mut *this.sleep).poll(context));
            *this.rests = false;
            if let Err(refusal) = slept {
                return Poll::Ready(Some(Err(refusal)));
            }
        }
        let item = ready!(this.stream.poll_next(context));
        if item.is_some() {
            this.sleep.reset_after(*this.delay);
            *this.rests = true;
        }
        Poll::Ready(item.map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.stream.size_hint().0, None)
    }
}

pin_project! {
    /// A stream of chunks of items; created by [`Timer::chunks_timeout`].
    ///
    /// # Examples
    ///
    /// Lines that are written together, none of them later than a second:
    ///
    /// ```
    /// use futures_core::Stream;
    /// use std::future::poll_fn;
    /// use std::num::NonZeroUsize;
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tourbillon::testing::block_on;
    ///
    /// let portions = block_on(|timer| async move {
    ///     let lines = timer.interval(Duration::from_millis(400)).unwrap();
    ///     let (most, second) = (NonZeroUsize::new(100).unwrap(), Duration::from_secs(1));
    ///     let mut portions = pin!(timer.chunks_timeout(most, second, lines));
    ///     let mut next = async || poll_fn(|cx| portions.as_mut().poll_next(cx)).await;
    ///     [next().await.unwrap().len(), next().await.unwrap().len()]
    /// });
    /// assert_eq!(portions, [3, 3]);
    /// ```
    #[derive(Debug)]
    #[must_use = "a stream does nothing unless it is polled"]
    pub struct ChunksTimeout<S: Stream> {
        // `None` after its end.
        #[pin]
        stream: Option<S>,
        most: usize,
        delay: Duration,
        sleep: Sleep,
        items: Vec<S::Item>,
    }
}

impl<S: Stream> Stream for ChunksTimeout<S> {
    type Item = Vec<S::Item>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Vec<S::Item>>> {
        let mut this = self.project();
        while let Some(stream) = this.stream.as_mut().as_pin_mut() {
            match stream.poll_next(context) {
                Poll::Ready(Some(item)) => {
                    if this.items.is_empty() {
                        this.sleep.reset_after(*this.delay);
                    }
                    this.items.push(item);
                    if this.items.len() == *this.most {
                        return Poll::Ready(Some(std::mem::take(this.items)));
                    }
                }
                Poll::Ready(None) => this.stream.set(None),
                Poll::Pending if this.items.is_empty() => return Poll::Pending,
                Poll::Pending => {
                    // The chunk ends even if the sleep was refused.
                    let _ = ready!(Pin::new(&mut *this.sleep).poll(context));
                    return Poll::Ready(Some(std::mem::take(this.items)));
                }
            }
        }
        let rest = std::mem::take(this.items);
        Poll::Ready(Some(rest).filter(|rest| !rest.is_empty()))
    }
}
