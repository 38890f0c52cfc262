//! One timer for each key: [`KeyedTimers`], built on the public interface of the wheel.
//!
//! Use it for timers whose owner has a key, such as an address, a session or a job, but no place to
//! store an id. [`KeyedTimers`] has an example and describes its end.
//!
//! # How it works
//!
//! ```text
//!            the map                         the wheel
//!   key ───────────────► value, id ─ ─ ─ ─► timer `id`: due then, for this key
//!    ▲                                        │
//!    └──────────── firing: key and id ────────┘
//! ```
//!
//! **The map decides which value a key has, and the wheel only decides when.** The wheel holds a
//! copy of each key, and the map holds the values.
//!
//! 1. A key is armed while it is in the map. Exactly one operation takes its value out, under the
//!    map's lock for that key: an insert, a cancel, a drain, a shutdown or a firing.
//! 2. A firing carries the key and the id of the timer that has ended. It takes the value if the
//!    key still has that id, and does nothing otherwise. Ids never recur, so a firing cannot take a
//!    value that was inserted, reset or cancelled later.
//! 3. An insert or a reset moves the timer under that lock. If the timer has just ended, its firing
//!    is on its way, possibly for long if it is in a batch. A new timer is then armed and its id is
//!    stored in the map, so that by rule 2 the firing does nothing. A key can thus be moved until
//!    its handler has received it.
//! 4. A new timer is armed under the lock as well, so its firing finds the key, however soon it
//!    comes.
//! 5. A firing whose handler has a token leaves the key's state in the map, without a value, until
//!    the token is dropped or arms the key again. A cancel, an insert, a drain and a shutdown take
//!    such a state like the state of an armed key, and the token detects this under the lock.
//!
//! The following runs under the lock of a key: its hash, comparison, clone and drop, the clone of a
//! value that [`KeyedTimers::get`] makes, and the wheel's waker. None of these may use the timers.
//! No handler runs under a lock, and no value is dropped under one. Values are accessible only to
//! the thread that holds the lock (`Exclusive`), so they need not be `Sync`.
//!
//! A handler that uses the timers holds them, and the driver holds the handler. The handler's
//! handle therefore does not hold the driver, or neither would ever be dropped.

#![deny(unsafe_code)]

mod arm;
mod drain;
mod exclusive;
mod fired;
mod map;
mod merge;
mod owned;
mod shared;
mod timer;

pub use drain::{Drain, Drained};
pub use fired::{Fired, Token};
pub use merge::InsertAbsentError;
pub use owned::OwnedKey;
pub use timer::KeyedTimer;

use crate::discard::discard_by;
use crate::panics::DropEach;
use crate::{BeyondRange, BuildError, Driver, DriverBuilder, Expired, InsertError, Unfired, Wheel};
use shared::{KeyState, KeyedShared, OwnerId};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timer::{TimerKind, When};

/// One timer with a value for each key. Any thread can arm, move and cancel timers by key.
///
/// **A key is armed from its [`insert`](Self::insert) until its value comes out, exactly once.**
/// The value is passed to the handler when the key is due, or is returned by `insert`,
/// [`cancel`](Self::cancel), [`drain`](Self::drain) or [`shutdown`](Self::shutdown). Until the
/// handler has received it, even while its firing waits for a busy executor, a key can be reset,
/// inserted again and cancelled.
///
/// Each operation is O(1) and briefly takes the lock of one part of a map. Unlike the operations of
/// a [`Wheel`], it is not lock-free. If the owner of a timer can store a
/// [`TimerId`](crate::TimerId), the wheel itself is faster. Hash, comparison, clone and drop of
/// keys, [`get`](Self::get)'s clone of a value, and the wheel's [`waker`](crate::Builder::waker)
/// run under that lock and must not use the timers. Handlers and drops of values run under no lock.
///
/// Clones share the timers. Dropping the last clone shuts down the driver of [`spawn`](Self::spawn)
/// and drops the values that have not fired. The handle that [`spawn_with`](Self::spawn_with)
/// passes to the handler, and its clones, do not count. The drop does not block, so it may happen
/// under a lock that the handler takes. Keys that are on their way to the handler still fire. To
/// wait for the handlers, call [`shutdown`](Self::shutdown) and wait for the
/// [`driver`](Self::driver).
///
/// A burst of keys gives its memory back as the keys leave. The removal that leaves a part of the
/// map a quarter full moves the rest of that part to a smaller table, under its lock.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::keyed::KeyedTimers;
/// use tourbillon::Builder;
///
/// let (send, idle) = mpsc::channel();
/// let timers = KeyedTimers::spawn(Builder::new().driver(), move |connection: u32, peer| {
///     let _ = send.send((connection, peer));
/// })?;
///
/// timers.insert(7, "a quiet one", Duration::from_millis(5))?; // connections open
/// timers.insert(8, "a busy one", Duration::from_millis(5))?;
/// assert!(timers.reset(&8, Duration::from_secs(30))?); // a packet arrives
/// assert_eq!(idle.recv()?, (7, "a quiet one"));
/// assert_eq!(timers.cancel(&8), Some("a busy one")); // it closes
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the last handle of a driver's ends it, and its timers"]
pub struct KeyedTimers<K, V> {
    wheel: Wheel<KeyedTimer<K>>,
    shared: Arc<KeyedShared<K, V>>,
    /// Keeps the driver running. `None` in the handler's own handle.
    guard: Option<Arc<DriverGuard<K, V>>>,
}

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Creates timers on a wheel that the caller sweeps. Pass everything that expires to
    /// [`fire`](Self::fire). The wheel must not be used for other timers.
    ///
    /// # Examples
    ///
    /// In virtual time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock, keyed::KeyedTimers};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let timers = KeyedTimers::new(wheel);
    /// timers.insert("tea", 1, Duration::from_secs(180))?;
    /// timers.insert("tea", 2, Duration::from_secs(240))?;
    ///
    /// clock.advance(Duration::from_secs(240));
    /// let mut fired = Vec::new();
    /// let swept = sweeper.sweep(|expired| fired.extend(timers.fire(expired)));
    /// assert_eq!((swept.expired, fired), (1, vec![("tea", 2)]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(wheel: Wheel<KeyedTimer<K>>) -> Self {
        Self { wheel, shared: Arc::new(KeyedShared::new()), guard: None }
    }

    /// Creates timers with their own driver. `handler` is called once for each key that is due,
    /// where the driver's executor runs it.
    ///
    /// # Errors
    ///
    /// Fails like [`DriverBuilder::spawn`].
    pub fn spawn(
        builder: DriverBuilder,
        handler: impl Fn(K, V) + Send + Sync + 'static,
    ) -> Result<Self, BuildError> {
        Self::spawn_firing(builder, |timers| {
            move |expired| {
                if let Some((key, value)) = timers.fire(expired) {
                    handler(key, value);
                }
            }
        })
    }

    /// Creates timers with their own driver, as [`spawn`](Self::spawn) does, for a handler that
    /// arms its key again or uses the timers itself. `make` creates the handler.
    ///
    /// # Errors
    ///
    /// Fails like [`DriverBuilder::spawn`].
    ///
    /// # Examples
    ///
    /// A heartbeat, which is armed again until the connection is closed:
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    /// use tourbillon::keyed::{Fired, KeyedTimers};
    /// use tourbillon::Builder;
    ///
    /// let (send, beats) = mpsc::channel();
    /// let timers = KeyedTimers::spawn_with(Builder::new().driver(), |_| {
    ///     move |Fired { value: beat, token, .. }: Fired<&str, u32>| {
    ///         let _ = send.send(beat);
    ///         // Refused when the key was cancelled, and after a shutdown.
    ///         let _ = token.rearm(beat + 1, Duration::from_millis(1));
    ///     }
    /// })?;
    /// timers.insert("connection 7", 0, Duration::from_millis(1))?;
    /// assert_eq!([beats.recv()?, beats.recv()?, beats.recv()?], [0, 1, 2]);
    /// timers.cancel("connection 7"); // also while its handler runs
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_with<H: Fn(Fired<K, V>) + Send + Sync + 'static>(
        builder: DriverBuilder,
        make: impl FnOnce(Self) -> H,
    ) -> Result<Self, BuildError> {
        Self::spawn_firing(builder, |timers| {
            let handler = make(timers.clone());
            move |expired| {
                if let Some(fired) = timers.fire_with_token(expired) {
                    handler(fired);
                }
            }
        })
    }

    /// Creates timers with their own driver. `make` creates the handler of the wheel's timers.
    fn spawn_firing<H: Fn(Expired<KeyedTimer<K>>) + Send + Sync + 'static>(
        builder: DriverBuilder,
        make: impl FnOnce(Self) -> H,
    ) -> Result<Self, BuildError> {
        let shared = Arc::new(KeyedShared::new());
        let inside = Arc::clone(&shared);
        let driver = builder
            .detach_on_drop()
            .spawn_with(|wheel| make(Self { wheel, shared: inside, guard: None }))?;
        let driver = Arc::new(driver);
        // Empty until now. A handler that shuts the timers down before this only closes the wheel.
        let _ = shared.driver.set(Arc::downgrade(&driver));
        let wheel = driver.wheel().clone();
        let guard = Arc::new(DriverGuard::new(driver, Arc::clone(&shared)));
        Ok(Self { wheel, shared, guard: Some(guard) })
    }

    /// Returns the key and value of an expired timer, for the caller to handle. Returns `None` if
    /// the value has come out by another way, or if the timer was a part of a drain, which this
    /// call has run.
    ///
    /// Call it only for timers created by [`new`](Self::new). A driver calls it by itself.
    ///
    /// # Panics
    ///
    /// Panics if a function passed to [`drain`](Self::drain) has panicked, after it was called for
    /// the whole part.
    #[must_use = "the value has not been handled yet"]
    pub fn fire(&self, expired: Expired<KeyedTimer<K>>) -> Option<(K, V)> {
        match expired.value.0 {
            TimerKind::Key(key) => {
                let is_it = |state: &KeyState<V>| state.is_armed() && state.id == expired.id;
                let (key, state) = self.shared.map.remove_if(&key, is_it)?;
                self.shared.value_of(state).map(|value| (key, value))
            }
            TimerKind::Part(part) => {
                part.run_or_resume();
                None
            }
        }
    }

    /// Arms `key` with `value`, to fire `delay` from now. If the key was armed, its deadline is
    /// replaced, and its previous value is returned and will not fire.
    ///
    /// # Errors
    ///
    /// Fails like [`Wheel::insert`]. The error contains `value`, and `key` is unchanged.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// assert_eq!(timers.insert("key", 1, Duration::from_secs(1))?, None);
    /// assert_eq!(timers.insert("key", 2, Duration::from_secs(9))?, Some(1));
    /// let refused = timers.insert("key", 3, Duration::MAX).unwrap_err();
    /// assert_eq!((refused.value, timers.get("key")), (3, Some(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert(&self, key: K, value: V, delay: Duration) -> Result<Option<V>, InsertError<V>> {
        self.insert_when(key, value, When::After(delay), OwnerId::NONE)
    }

    /// Arms `key`, as [`insert`](Self::insert) does, to fire at `deadline`. If that has passed, the
    /// key fires at the next sweep.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    pub fn insert_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<Option<V>, InsertError<V>> {
        self.insert_when(key, value, When::At(deadline), OwnerId::NONE)
    }

    /// Moves the deadline of an armed key to `delay` from now, earlier or later.
    ///
    /// Returns `true` if the key fires at its new deadline and not at the old one. Returns `false`
    /// if it is not armed, or if it is due with its firing on its way and the wheel refuses a new
    /// timer because it is closed or full.
    ///
    /// # Errors
    ///
    /// Fails if the delay is beyond the wheel's range. The key keeps its deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// timers.insert(String::from("key"), 1, Duration::from_secs(1))?;
    /// assert!(timers.reset("key", Duration::from_secs(30))?);
    /// assert!(!timers.reset("another", Duration::from_secs(30))?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset<Q>(&self, key: &Q, delay: Duration) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.reset_when(key, When::After(delay))
    }

    /// Moves the deadline, as [`reset`](Self::reset) does, to `deadline`. If that has passed, the
    /// key fires at the next sweep.
    ///
    /// # Errors
    ///
    /// Fails like [`reset`](Self::reset).
    pub fn reset_at<Q>(&self, key: &Q, deadline: Instant) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.reset_when(key, When::At(deadline))
    }

    /// Disarms `key`. Returns its value if and only if it has not fired and now never will.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// timers.insert("key", 1, Duration::from_secs(1))?;
    /// assert_eq!(timers.cancel("key"), Some(1));
    /// assert_eq!(timers.cancel("key"), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.cancel_if(key, |_| true)
    }

    /// Returns `true` if `key` is armed, which means that its value has not come out.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// timers.insert("key", 1, Duration::from_secs(1))?;
    /// assert!(timers.contains("key") && !timers.contains("another"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.map.read(key, KeyState::is_armed).unwrap_or(false)
    }

    /// Returns a clone of the value of `key` if the key is armed. The clone is made under the
    /// exclusive lock of the key.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// timers.insert("key", 1, Duration::from_secs(1))?;
    /// assert_eq!((timers.get("key"), timers.get("another")), (Some(1), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        V: Clone,
    {
        self.shared.map.change(key, |_, state| state.value().cloned()).flatten()
    }

    /// Returns the deadline of `key`, rounded up to the wheel's resolution.
    ///
    /// Returns `None` if the key is not armed, or if it is due and its firing is on its way. While
    /// another thread moves the deadline, it behaves like
    /// [`Wheel::deadline`](crate::Wheel::deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// let deadline = timers.wheel().pin().now() + Duration::from_secs(1);
    /// timers.insert_at("key", 1, deadline)?;
    /// assert!(timers.deadline("key") >= Some(deadline));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn deadline<Q>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.map.read(key, |state| self.wheel.deadline(state.id))?
    }

    /// Returns the number of armed keys. It sums over the parts of the map, so it is not for a hot
    /// path. While other threads fire or change keys, the sum may be off by that many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Returns `true` if no key is armed. See [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the wheel, for its metrics and its time. To end timers, use [`drain`](Self::drain)
    /// or [`shutdown`](Self::shutdown). A key whose timer was taken out of the wheel itself never
    /// fires.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<KeyedTimer<K>> {
        &self.wheel
    }

    /// Returns the driver if there is one and it has not been dropped. Use it to wait for handlers
    /// after [`shutdown`](Self::shutdown), and for its metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::{Builder, keyed::KeyedTimers};
    ///
    /// let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: u32| ())?;
    /// timers.shutdown();
    /// if let Some(driver) = timers.driver() {
    ///     driver.wait()?; // no handler runs any more
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn driver(&self) -> Option<Arc<Driver<KeyedTimer<K>>>> {
        self.shared.driver.get()?.upgrade()
    }

    /// Takes all keys out and calls `each` with every key and its value, where handlers run, a few
    /// hundred keys at a time. None of these keys fires any more.
    ///
    /// Keys that are inserted meanwhile may be taken or stay. `each` may use the timers, to insert
    /// its key again or to drain. Parts that the wheel refuses, because it is closed or full, are
    /// run by this call. To obtain the values as a list, send them to a channel, or use
    /// [`shutdown`](Self::shutdown).
    ///
    /// A panic of `each` affects no other key. It is counted in [`Drained`]. On a handler's thread
    /// it is also resumed after the part, as if a handler had panicked.
    ///
    /// O(keys), and O(1) under each lock.
    ///
    /// # Examples
    ///
    /// A shutdown that sends the requests that were still waiting:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, keyed::KeyedTimers};
    ///
    /// let timers = KeyedTimers::spawn(Builder::new().driver(), |_: u32, _: &str| ())?;
    /// timers.insert(1, "retry in an hour", Duration::from_secs(3600))?;
    /// let drained = timers.drain(|_, request| assert!(request.starts_with("retry"))).wait();
    /// assert_eq!(drained.keys, 1);
    /// assert!(timers.shutdown().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain(&self, each: impl Fn(K, V) + Send + Sync + 'static) -> Drain {
        let taken = self.shared.map.take_all().into_iter().filter_map(|(key, state)| {
            drop(self.wheel.cancel(state.id));
            self.shared.value_of(state).map(|value| (key, value))
        });
        let (drain, tokens) = Drain::begin(taken.collect(), each);
        for token in tokens {
            let part = KeyedTimer(TimerKind::Part(token));
            if let Err(refused) = self.wheel.insert(part, Duration::ZERO) {
                refused.value.run_part_here();
            }
        }
        drain
    }

    /// Closes the timers, shuts their driver down, and returns every key that was armed. Later
    /// calls of [`insert`](Self::insert) are refused as closed. Idempotent, so keys that an earlier
    /// call returned are not returned again.
    ///
    /// Handlers that have already received their key continue. To wait for them, wait for the
    /// [`driver`](Self::driver). This call completes drains that are in progress.
    ///
    /// It may be called from anywhere, including a handler, but not under a lock that a handler
    /// takes. It waits for the tick thread to end its sweep, and for the handlers if they run
    /// [inline](crate::Inline).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, Refusal, keyed::KeyedTimers};
    ///
    /// let timers = KeyedTimers::spawn(Builder::new().driver(), |_, _| ())?;
    /// timers.insert(7, "unfinished", Duration::from_secs(60))?;
    /// let unfired = timers.shutdown().remove(0);
    /// assert_eq!((unfired.key, unfired.value), (7, "unfinished"));
    ///
    /// let refused = timers.insert(7, "late", Duration::ZERO).unwrap_err();
    /// assert_eq!((refused.reason, refused.value), (Refusal::Closed, "late"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown(&self) -> Vec<UnfiredKey<K, V>> {
        // Closed first, so that a thread that reaches a part of the map after it was emptied is
        // refused.
        self.wheel.close();
        let now = self.wheel.pin().now();
        let taken = self.shared.map.take_all().into_iter().filter_map(|(key, state)| {
            let deadline = self.wheel.deadline(state.id).unwrap_or(now);
            drop(self.wheel.cancel(state.id));
            self.shared.value_of(state).map(|value| UnfiredKey { key, value, deadline })
        });
        let stopped = taken.collect();
        let left = match self.driver() {
            Some(driver) => driver.shutdown(),
            None => self.wheel.drain(),
        };
        left.into_iter().for_each(|Unfired { value, .. }| value.run_part_here());
        stopped
    }
}

/// A key that was armed when its timers were shut down; returned by
/// [`KeyedTimers::shutdown`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfiredKey<K, V> {
    /// The key.
    pub key: K,
    /// The value of the key.
    pub value: V,
    /// The instant when the key would have fired, rounded up to the wheel's resolution. For a key
    /// that was already on its way to the handler, it is the time of the shutdown.
    pub deadline: Instant,
}

/// The driver of the timers, shared by the caller's handles but not by the handler's. It is shut
/// down when the last of the caller's handles is dropped.
struct DriverGuard<K, V> {
    driver: Arc<Driver<KeyedTimer<K>>>,
    shared: Arc<KeyedShared<K, V>>,
    /// [`DriverGuard::end`] for `drop`, which has no bound on the key.
    end: fn(&Self),
}

impl<K: Hash + Eq + Send + 'static, V> DriverGuard<K, V> {
    fn new(driver: Arc<Driver<KeyedTimer<K>>>, shared: Arc<KeyedShared<K, V>>) -> Self {
        Self { driver, shared, end: Self::end }
    }

    /// Drops the values that have not fired. Handles inside handlers and values may live on, and
    /// the map with them. Timers that the tick thread and the executor already hold still fire.
    ///
    /// The last handle may be dropped under a lock that a handler takes, so this does not wait for
    /// a handler. It closes the wheel and takes out the timers that have not fired, and the tick
    /// thread ends by itself. To see the handlers end, a caller shuts the timers down and then
    /// waits.
    fn end(&self) {
        discard_by(self.driver.shutdown_detached(), |Unfired { value: timer, id, .. }| {
            let mut each = DropEach::default();
            if let TimerKind::Key(key) = &timer.0 {
                each.run(|| drop(self.shared.map.remove_if(key, |state| state.id == id)));
            }
            each.drop_one(timer);
        });
    }
}

impl<K, V> Drop for DriverGuard<K, V> {
    fn drop(&mut self) {
        (self.end)(self);
    }
}

impl<K, V> Clone for KeyedTimers<K, V> {
    fn clone(&self) -> Self {
        Self {
            wheel: self.wheel.clone(),
            shared: Arc::clone(&self.shared),
            guard: self.guard.clone(),
        }
    }
}

impl<K, V> fmt::Debug for KeyedTimers<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTimers").field("wheel", &self.wheel).finish_non_exhaustive()
    }
}
