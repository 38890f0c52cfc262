//! [`DelayQueue`]: values that come out when their delays have passed.
//!
//! The queue has one owner, so it needs no wheel of its own. A heap orders the values by the tick
//! when they are due, and one sleep of the process's timer wakes the task that polls. A value that
//! is removed or reset leaves its old place in the heap behind. It is dropped when it comes to the
//! top, or when half of the places are of that kind. The top always is a value's present place.

#![forbid(unsafe_code)]

use super::wait::{Wait, poll_budget};
use ::tokio::time::Instant;
use futures_core::Stream;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// A queue whose values come out one by one, each when its delay has passed.
///
/// It is a [`Stream`] of [`Expired`]. The stream yields `None` while the queue is empty, and
/// continues after the next insert. Deadlines are rounded up to whole milliseconds since the
/// creation of the queue. Values of the same millisecond come out in the order of their inserts and
/// resets.
///
/// Inserting, removing and resetting cost O(log n), and amortised O(1) if the deadline is later
/// than most. For a queue that other threads insert into, see
/// [`future::DelayQueue`](crate::future::DelayQueue).
///
/// # Examples
///
/// A cache whose entries expire:
///
/// ```
/// use std::collections::HashMap;
/// use std::future::poll_fn;
/// use std::task::{Context, Poll, ready};
/// use tourbillon::time::{DelayQueue, Duration, delay_queue};
///
/// #[derive(Default)]
/// struct Cache {
///     entries: HashMap<&'static str, (u32, delay_queue::Key)>,
///     expirations: DelayQueue<&'static str>,
/// }
///
/// impl Cache {
///     fn insert(&mut self, name: &'static str, value: u32) {
///         let expiry = self.expirations.insert(name, Duration::from_millis(5));
///         self.entries.insert(name, (value, expiry));
///     }
///
///     fn remove(&mut self, name: &str) {
///         if let Some((_, expiry)) = self.entries.remove(name) {
///             self.expirations.remove(&expiry);
///         }
///     }
///
///     fn poll_purge(&mut self, context: &mut Context<'_>) -> Poll<()> {
///         while let Some(expired) = ready!(self.expirations.poll_expired(context)) {
///             self.entries.remove(expired.get_ref());
///         }
///         Poll::Ready(())
///     }
/// }
///
/// let mut cache = Cache::default();
/// cache.insert("a", 1);
/// cache.insert("b", 2);
/// cache.remove("a");
/// pollster::block_on(poll_fn(|context| cache.poll_purge(context)));
/// assert!(cache.entries.is_empty());
/// ```
pub struct DelayQueue<T> {
    entries: Entries<T>,
    /// The places of the values, and places that they have left.
    heap: BinaryHeap<Reverse<Place>>,
    start: Instant,
    /// Values of this tick and earlier ones are due.
    reached: u64,
    wait: Option<ArmedWait>,
    /// The task that polled last, until it is woken.
    task: Option<Waker>,
    /// The number of the next key and the next place.
    next_number: u64,
}

/// The wait for the first value, and the tick of its deadline.
struct ArmedWait {
    wait: Wait,
    tick: u64,
}

/// A place in the order of the heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// The number of milliseconds since the start of the queue.
    tick: u64,
    /// Different for each place.
    number: u64,
    /// The index of the value's slot.
    slot: usize,
}

/// The key of a value in a [`DelayQueue`]; returned by [`DelayQueue::insert`].
///
/// A queue never uses a key again. A key is valid until its value has come out or was removed, also
/// across resets and [`DelayQueue::compact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    number: u64,
    /// The slot of the value at its insert.
    slot: usize,
}

/// A value that has come out of a [`DelayQueue`] or was removed from it.
#[derive(Debug)]
pub struct Expired<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

/// The maximum number of values.
const MAX_ENTRIES: usize = (1 << 30) - 1;

/// The number of abandoned places that a heap may have in any case.
const FEW: usize = 32;

impl<T> DelayQueue<T> {
    /// Creates an empty queue. It allocates nothing before the first insert.
    pub fn new() -> Self {
        Self::with_capacity(0)
    }

    /// Creates an empty queue with memory for `capacity` values.
    ///
    /// # Examples
    ///
    /// ```
    /// let queue = tourbillon::time::DelayQueue::<u32>::with_capacity(10);
    /// assert!(queue.is_empty() && queue.capacity() >= 10);
    /// ```
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            entries: Entries::with_capacity(capacity),
            heap: BinaryHeap::with_capacity(capacity),
            start: Instant::now(),
            reached: 0,
            wait: None,
            task: None,
            next_number: 0,
        }
    }

    /// Inserts a value that comes out at `when`, and returns its key.
    ///
    /// If `when` has passed, the next poll returns the value. If the value becomes the first, the
    /// task that waits for the queue is woken.
    ///
    /// # Panics
    ///
    /// Panics if the queue has 2³⁰ − 1 values.
    #[track_caller]
    pub fn insert_at(&mut self, value: T, when: Instant) -> Key {
        assert!(self.len() < MAX_ENTRIES, "max entries exceeded");
        let (number, tick) = (self.number(), self.tick(when));
        let key = self.entries.insert(value, number, tick);
        self.heap.push(Reverse(Place { tick, number, slot: key.slot }));
        self.wake_if_first_is_earlier();
        key
    }

    /// Inserts a value that comes out when `timeout` has passed, like
    /// [`insert_at`](Self::insert_at).
    ///
    /// # Panics
    ///
    /// Panics if the queue has 2³⁰ − 1 values, or if the clock cannot represent the deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::new();
    /// let key = queue.insert("retry", Duration::from_secs(5));
    /// assert_eq!(queue.remove(&key).into_inner(), "retry");
    /// ```
    #[track_caller]
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_at(value, Instant::now() + timeout)
    }

    /// Polls for the next value whose deadline has passed. Returns `Ready(None)` if the queue is
    /// empty.
    ///
    /// After `Pending` the task is woken when the first value is due, when an earlier value comes,
    /// and when the queue becomes empty.
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
        let Some(&Reverse(first)) = self.heap.peek() else {
            self.wait = None;
            return Poll::Ready(None);
        };
        if first.tick > self.reached {
            ready!(self.poll_wait(first.tick, context));
            let now = Instant::now().saturating_duration_since(self.start);
            self.reached = first.tick.max(whole_millis(now));
        }
        ready!(poll_budget(context));
        let entry = self.entries.remove(first.slot);
        self.heap.pop();
        self.settle();
        Poll::Ready(Some(self.expired(entry)))
    }

    fn poll_wait(&mut self, tick: u64, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.instant(tick);
        let armed = self.wait.get_or_insert_with(|| {
            let wait = Wait::until(deadline);
            ArmedWait { wait, tick }
        });
        if armed.tick != tick {
            armed.wait.reset(deadline);
            armed.tick = tick;
        }
        armed.wait.poll_uncharged(context)
    }

    /// Removes the value with this key, and returns it with its deadline.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out or was removed. See [`try_remove`](Self::try_remove).
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        self.try_remove(key).expect("invalid key")
    }

    /// Removes the value with this key, and returns it with its deadline, or `None` if it has come
    /// out or was removed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::new();
    /// let key = queue.insert("retry", Duration::from_secs(5));
    /// assert_eq!(queue.try_remove(&key).unwrap().into_inner(), "retry");
    /// assert!(queue.try_remove(&key).is_none());
    /// ```
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        let slot = self.entries.find(key)?;
        let entry = self.entries.remove(slot);
        self.settle();
        if self.is_empty() {
            self.wait = None;
            self.wake();
        }
        Some(self.expired(entry))
    }

    /// Returns the deadline of the value with this key, rounded up to a millisecond.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out or was removed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration, Instant};
    ///
    /// let mut queue = DelayQueue::new();
    /// let soon = Instant::now() + Duration::from_secs(5);
    /// let key = queue.insert_at("retry", soon);
    /// assert!(queue.deadline(&key) - soon < Duration::from_millis(1));
    /// ```
    #[track_caller]
    pub fn deadline(&self, key: &Key) -> Instant {
        let slot = self.entries.find(key).expect("invalid key");
        self.instant(self.entries.get(slot).map_or(0, |entry| entry.place.tick))
    }

    /// Sets when the value with this key comes out, earlier or later.
    ///
    /// # Panics
    ///
    /// Panics if the value has come out or was removed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration, Instant};
    ///
    /// let mut queue = DelayQueue::new();
    /// let key = queue.insert("retry", Duration::from_secs(5));
    /// let later = Instant::now() + Duration::from_secs(10);
    /// queue.reset_at(&key, later);
    /// assert!(queue.deadline(&key) >= later);
    /// ```
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, when: Instant) {
        let slot = self.entries.find(key).expect("invalid key");
        let place = Place { tick: self.tick(when), number: self.number(), slot };
        self.entries.set_place(place);
        self.heap.push(Reverse(place));
        self.settle();
        self.wake_if_first_is_earlier();
    }

    /// Sets the delay of the value with this key, counted from now, like
    /// [`reset_at`](Self::reset_at).
    ///
    /// # Panics
    ///
    /// Panics if the value has come out or was removed, or if the clock cannot represent the
    /// deadline.
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        self.reset_at(key, Instant::now() + timeout);
    }

    /// Returns the key of the value that comes out next, or `None` if the queue is empty. O(1).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::new();
    /// let later = queue.insert("later", Duration::from_secs(9));
    /// let soon = queue.insert("soon", Duration::from_secs(5));
    /// assert_eq!(queue.peek(), Some(soon));
    /// ```
    pub fn peek(&self) -> Option<Key> {
        let Reverse(first) = self.heap.peek()?;
        self.entries.get(first.slot).map(|entry| entry.key)
    }

    /// Removes all values.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::new();
    /// queue.insert("retry", Duration::from_secs(5));
    /// queue.clear();
    /// assert!(queue.is_empty());
    /// ```
    pub fn clear(&mut self) {
        let had_values = !self.is_empty();
        self.entries.clear();
        self.heap.clear();
        self.wait = None;
        if had_values {
            self.wake();
        }
    }

    /// Returns the number of values that the queue can hold without another allocation of slots.
    pub fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns the number of values in the queue.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns `true` if the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reserves memory for at least `additional` more values.
    ///
    /// # Panics
    ///
    /// Panics if the capacity would exceed 2³⁰ − 1 values.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::new();
    /// queue.insert("retry", Duration::from_secs(5));
    /// queue.reserve(10);
    /// assert!(queue.capacity() >= 11);
    /// ```
    #[track_caller]
    pub fn reserve(&mut self, additional: usize) {
        let exceeds = self.capacity().saturating_add(additional) > MAX_ENTRIES;
        assert!(!exceeds, "max queue capacity exceeded");
        self.entries.reserve(additional);
        self.heap.reserve(additional);
    }

    /// Gives back memory, as far as values need not move. See [`compact`](Self::compact).
    pub fn shrink_to_fit(&mut self) {
        self.entries.shrink_to_fit();
        self.heap.shrink_to_fit();
    }

    /// Moves the values together and gives back the rest of the memory. Keys stay valid. O(n).
    ///
    /// A key of a value that was moved is then found in a map.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{DelayQueue, Duration};
    ///
    /// let mut queue = DelayQueue::with_capacity(10);
    /// let first = queue.insert("first", Duration::from_secs(5));
    /// let second = queue.insert("second", Duration::from_secs(10));
    /// queue.remove(&first);
    /// queue.compact();
    /// assert_eq!(queue.capacity(), 1);
    /// assert_eq!(queue.remove(&second).into_inner(), "second");
    /// ```
    pub fn compact(&mut self) {
        self.entries.compact();
        self.heap.clear();
        self.heap.extend(self.entries.places().map(Reverse));
        self.heap.shrink_to_fit();
    }

    fn number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        number
    }

    /// Returns the first whole millisecond at or after an instant.
    fn tick(&self, when: Instant) -> u64 {
        let delay = when.saturating_duration_since(self.start);
        let part = u64::from(delay.subsec_nanos() % 1_000_000 > 0);
        whole_millis(delay).saturating_add(part)
    }

    fn instant(&self, tick: u64) -> Instant {
        self.start.checked_add(Duration::from_millis(tick)).unwrap_or(self.start)
    }

    fn expired(&self, entry: Entry<T>) -> Expired<T> {
        let deadline = self.instant(entry.place.tick);
        Expired { value: entry.value, deadline, key: entry.key }
    }

    /// Drops abandoned places until the top is a value's present place, and all of them if they are
    /// the majority.
    fn settle(&mut self) {
        let entries = &self.entries;
        if self.heap.len() > 2 * entries.len() + FEW {
            self.heap.retain(|Reverse(place)| entries.is_present(place));
        }
        while self.heap.peek().is_some_and(|Reverse(first)| !entries.is_present(first)) {
            self.heap.pop();
        }
    }

    /// Wakes the task if the first value is due before the task is woken by its wait.
    fn wake_if_first_is_earlier(&mut self) {
        let armed = self.wait.as_ref().map_or(u64::MAX, |armed| armed.tick);
        if self.heap.peek().is_some_and(|Reverse(first)| first.tick < armed) {
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }
}

/// Returns the number of whole milliseconds.
fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Yields what [`poll_expired`](DelayQueue::poll_expired) returns.
impl<T> Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.get_mut().poll_expired(context)
    }
}

/// No value is ever pinned.
impl<T> Unpin for DelayQueue<T> {}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("DelayQueue");
        shown.field("len", &self.len()).field("places", &self.heap.len()).finish_non_exhaustive()
    }
}

impl<T> Expired<T> {
    /// Returns a reference to the value.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the value.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns when the value was due.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the key that the value had.
    pub fn key(&self) -> Key {
        self.key
    }
}

/// A value in its slot.
struct Entry<T> {
    value: T,
    key: Key,
    place: Place,
}

/// The slots of the values.
struct Entries<T> {
    slots: Vec<Option<Entry<T>>>,
    vacant: Vec<usize>,
    /// The slots of values that [`compact`](Self::compact) has moved, by the numbers of their keys.
    moved: HashMap<u64, usize>,
}

impl<T> Entries<T> {
    fn with_capacity(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), vacant: Vec::new(), moved: HashMap::new() }
    }

    fn insert(&mut self, value: T, number: u64, tick: u64) -> Key {
        let slot = self.vacant.pop().unwrap_or(self.slots.len());
        let key = Key { number, slot };
        let entry = Some(Entry { value, key, place: Place { tick, number, slot } });
        match self.slots.get_mut(slot) {
            Some(vacant) => *vacant = entry,
            None => self.slots.push(entry),
        }
        key
    }

    /// Removes the value in a slot that is not vacant.
    fn remove(&mut self, slot: usize) -> Entry<T> {
        let entry = self.slots[slot].take().expect("the slot has a value");
        self.vacant.push(slot);
        if entry.key.slot != slot {
            self.moved.remove(&entry.key.number);
        }
        entry
    }

    fn get(&self, slot: usize) -> Option<&Entry<T>> {
        self.slots.get(slot)?.as_ref()
    }

    /// Returns the slot of the value with this key.
    fn find(&self, key: &Key) -> Option<usize> {
        match self.get(key.slot) {
            Some(entry) if entry.key == *key => Some(key.slot),
            _ => self.moved.get(&key.number).copied(),
        }
    }

    fn set_place(&mut self, place: Place) {
        if let Some(Some(entry)) = self.slots.get_mut(place.slot) {
            entry.place = place;
        }
    }

    /// Returns `true` if a value has this place.
    fn is_present(&self, place: &Place) -> bool {
        self.get(place.slot).is_some_and(|entry| entry.place == *place)
    }

    fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.slots.iter().flatten().map(|entry| entry.place)
    }

    /// Moves the values to the first slots.
    fn compact(&mut self) {
        self.slots.retain(Option::is_some);
        self.vacant.clear();
        self.moved.clear();
        for (slot, entry) in self.slots.iter_mut().flatten().enumerate() {
            entry.place.slot = slot;
            if entry.key.slot != slot {
                self.moved.insert(entry.key.number, slot);
            }
        }
        self.shrink_to_fit();
    }

    fn shrink_to_fit(&mut self) {
        self.slots.shrink_to_fit();
        self.vacant.shrink_to_fit();
        self.moved.shrink_to_fit();
    }

    fn clear(&mut self) {
        self.slots.clear();
        self.vacant.clear();
        self.moved.clear();
    }

    fn reserve(&mut self, additional: usize) {
        self.slots.reserve(additional.saturating_sub(self.vacant.len()));
    }

    fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    fn capacity(&self) -> usize {
        self.slots.capacity()
    }
}
