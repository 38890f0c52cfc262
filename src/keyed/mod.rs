//! One timer for each key: [`KeyedTimers`], on the wheel's public interface alone.
//!
//! For timers whose owner has a name and no place to keep an id: an address, a session, a job.
//! [`KeyedTimers`] has an example, and how it ends.
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
//! **The map decides who has a value; the wheel only says when.** The wheel holds a copy of each
//! key, the map holds the values.
//!
//! 1. A key is armed while it is in the map. Its value is taken out under the map's lock of that
//!    key, by an insert, a cancel, a drain, a shutdown or a firing: by one of them.
//! 2. A firing brings the key and the id of the timer that has ended. It takes the value if the
//!    key has that id still, and else does nothing. Ids never recur, so it cannot take a value
//!    that was inserted, reset or cancelled since.
//! 3. An insert or a reset moves the timer under that lock. If the timer has just ended, its firing
//!    is on its way (in a batch, it may be so for long): a new timer is armed and its id put into
//!    the map, and by 2 the firing does nothing. So a key can be moved until its handler has it.
//! 4. A new timer is armed under the lock too: its firing, however soon, finds the key.
//! 5. A firing whose handler has a token leaves the key's slot in the map, without a value, until
//!    the token is dropped or arms it again. A cancel, an insert, a drain and a shutdown take such
//!    a slot as they take an armed one, and the token finds that out under the lock.
//!
//! What runs under the lock of a key: its hash, comparison, clone and drop, the clone of a value
//! that [`KeyedTimers::get`] makes, and the wheel's waker. None of these may use the timers. No
//! handler runs under a lock, and no value is dropped under one. Values are reached by whoever has
//! the lock alone (`Exclusive`), so that they need not be `Sync`.
//!
//! A handler that uses the timers holds them, and the driver holds the handler: its handle is one
//! that does not hold the driver, else neither would ever go.

#![deny(unsafe_code)]

mod arm;
mod drain;
mod driver_guard;
mod exclusive;
mod fired;
mod map;
mod merge;
mod owned;
mod shared;
mod timer;
mod unfired_key;

pub use drain::{Drain, Drained};
pub use fired::{Fired, Token};
pub use merge::InsertAbsentError;
pub use owned::OwnedKey;
pub use timer::KeyedTimer;
pub use unfired_key::UnfiredKey;

use crate::{BeyondRange, BuildError, Driver, DriverBuilder, Expired, InsertError, Unfired, Wheel};
use driver_guard::DriverGuard;
use shared::{KeyState, KeyedShared, OwnerId};
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use timer::{TimerKind, When};

/// One timer for each key, with a value: any thread sets, moves and removes them by key.
///
/// **A key is armed from its [`insert`](Self::insert) until its value comes out, and the value
/// comes out once**: to the handler when the key is due, or from `insert`,
/// [`cancel`](Self::cancel), [`drain`](Self::drain) or [`shutdown`](Self::shutdown). Until the
/// handler has it, also while its firing waits for a busy executor, a key can be reset, inserted
/// anew and cancelled.
///
/// Each operation is O(1) and takes the lock of one part of a map, for a moment: it is not
/// lock-free as the [`Wheel`]'s are. Where the owner of a timer can keep a
/// [`TimerId`](crate::TimerId), the wheel itself is quicker. Hash, comparison, clone and drop of
/// keys, [`get`](Self::get)'s clone of a value, and the wheel's [`waker`](crate::Builder::waker)
/// run under that lock and must not use the timers; handlers and drops of values run under none.
///
/// Clones share the timers. The driver of [`spawn`](Self::spawn) is shut down with the last of
/// them, and what had not fired is dropped; the handle that [`spawn_with`](Self::spawn_with) gives
/// to the handler, and its clones, do not count. The drop waits for nobody, so that it may happen
/// under a lock that the handler takes: what was on its way to the handler still fires. To see the
/// handlers end, [`shutdown`](Self::shutdown) the timers and wait for the [`driver`](Self::driver).
///
/// A burst of keys gives its memory back as they go: what leaves a part of the map a quarter full
/// moves the rest of that part to a smaller table, under its lock.
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
    /// Keeps the driver running; the handler's own handle has none.
    guard: Option<Arc<DriverGuard<K, V>>>,
}

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Timers on a wheel that the caller sweeps: hand everything that expires to
    /// [`fire`](Self::fire). The wheel is theirs alone.
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

    /// Timers with a driver of their own: `handler` is called once for each key that is due, where
    /// the driver's executor runs it.
    ///
    /// # Errors
    ///
    /// As [`DriverBuilder::spawn`].
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

    /// As [`spawn`](Self::spawn), for a handler that arms its key again or uses the timers itself:
    /// `make` makes it.
    ///
    /// # Errors
    ///
    /// As [`DriverBuilder::spawn`].
    ///
    /// # Examples
    ///
    /// A heartbeat, which arms itself again until the connection is closed:
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
        // Empty before: a handler that stops the timers by now closes the wheel only.
        let _ = shared.driver.set(Arc::downgrade(&driver));
        let wheel = driver.wheel().clone();
        let guard = Arc::new(DriverGuard::new(driver, Arc::clone(&shared)));
        Ok(Self { wheel, shared, guard: Some(guard) })
    }

    /// The key and value of a timer that has expired, for the caller to handle. `None`: the value
    /// has come out by another way, or it was a part of a drain, which this has run.
    ///
    /// Only for timers made by [`new`](Self::new); a driver does it itself.
    ///
    /// # Panics
    ///
    /// A function given to [`drain`](Self::drain) panicked; it has been called for the whole part
    /// before.
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

    /// Arms `key`: it fires `delay` from now, with `value`. If it was armed, the value that it had
    /// comes back and will not fire, and its deadline is replaced.
    ///
    /// # Errors
    ///
    /// As [`Wheel::insert`]; `value` comes back in the error, and `key` is as it was.
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

    /// As [`insert`](Self::insert), due at `deadline`; at the next sweep if that has passed.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<Option<V>, InsertError<V>> {
        self.insert_when(key, value, When::At(deadline), OwnerId::NONE)
    }

    /// Sets the deadline of an armed key to `delay` from now, earlier or later.
    ///
    /// `true`: it fires at its new deadline and not at the old one. `false`: it is not armed; or it
    /// is due, its firing is on its way, and the wheel refuses a new timer because it is closed or
    /// full.
    ///
    /// # Errors
    ///
    /// The delay is beyond the wheel's range; the key keeps its deadline.
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

    /// As [`reset`](Self::reset), to `deadline`; one that has passed means the next sweep.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset).
    pub fn reset_at<Q>(&self, key: &Q, deadline: Instant) -> Result<bool, BeyondRange>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.reset_when(key, When::At(deadline))
    }

    /// Disarms `key`: its value, if and only if it has not fired and now never will.
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

    /// Whether `key` is armed: its value has not come out.
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

    /// A clone of the value that `key` is armed with. It is made alone under the key's lock.
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

    /// When `key` is due, rounded up to the wheel's resolution; `None` if it is not armed, or is
    /// due and its firing on its way. As [`Wheel::deadline`](crate::Wheel::deadline) while another
    /// thread moves it.
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

    /// How many keys are armed. It sums over the parts of the map: not for a hot path. While other
    /// threads fire or change keys the sum may be off by as many.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.len()
    }

    /// Whether no key is armed; see [`len`](Self::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The wheel, for its figures and its time. To end timers, use [`drain`](Self::drain) or
    /// [`shutdown`](Self::shutdown): a key whose timer was taken from the wheel itself never fires.
    #[must_use]
    pub fn wheel(&self) -> &Wheel<KeyedTimer<K>> {
        &self.wheel
    }

    /// The driver, if there is one and it has not been dropped: to wait for handlers, after
    /// [`shutdown`](Self::shutdown), and for its figures.
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

    /// Takes every key out and has `each` called with each of them and its value, where handlers
    /// run, some hundred keys at a time.
    ///
    /// None of them fires any more. Keys that are inserted meanwhile may be taken too, or stay.
    /// `each` may use the timers: insert its key again, or drain. Parts that the wheel does not
    /// accept, being closed or full, are run by this call. To have the values as a list, send them
    /// to a channel, or use [`shutdown`](Self::shutdown). A panic of `each` harms no other key; it
    /// is counted in [`Drained`], and, where handlers run, resumed after the part, as if a handler
    /// had panicked.
    /// O(keys), and O(1) under each lock.
    ///
    /// # Examples
    ///
    /// A shutdown that sends what was waiting to be sent:
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
                refused.value.end_here();
            }
        }
        drain
    }

    /// Closes the timers, shuts their driver down, and hands back every key that was armed, with
    /// its value and deadline; for a key that was due and on its way to the handler, with the time
    /// of this call. From then on every [`insert`](Self::insert) is refused as closed.
    ///
    /// Handlers that have their key already go on; to see them end, wait for the
    /// [`driver`](Self::driver). What drains had still to do, this call does. Idempotent: what an
    /// earlier call handed back is not handed back again. It may be called from anywhere, also
    /// from a handler; but not under a lock that a handler takes, as it waits for the tick thread
    /// to end its sweep, with the handlers if they run [inline](crate::Inline).
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
        // Closed first: whoever comes to a part of the map after it was emptied is refused.
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
        left.into_iter().for_each(|Unfired { value, .. }| value.end_here());
        stopped
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
