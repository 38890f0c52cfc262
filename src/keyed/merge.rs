//! Inserts that depend on the current value, and updates in place.

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::OwnerId;
use super::timer::When;
use crate::InsertError;
use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// The reason why [`KeyedTimers::insert_if_absent`] did not arm a key, with the value that was
/// passed in.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InsertAbsentError<V> {
    /// The key is already armed and remains unchanged.
    Armed(V),
    /// The wheel refused the timer.
    Refused(InsertError<V>),
}

impl<V> InsertAbsentError<V> {
    /// Returns the value that was not armed.
    pub fn into_value(self) -> V {
        match self {
            Self::Armed(value) | Self::Refused(InsertError { value, .. }) => value,
        }
    }
}

impl<V> fmt::Display for InsertAbsentError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Armed(_) => f.write_str("the key is already armed"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

// Without a bound on the value, which the error does not show.
impl<V> fmt::Debug for InsertAbsentError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Armed(_) => f.debug_tuple("Armed").finish_non_exhaustive(),
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
        }
    }
}

impl<V> std::error::Error for InsertAbsentError<V> {}

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Arms `key` with `value`, to fire `delay` from now, unless the key is already armed. O(1),
    /// under the lock of the key.
    ///
    /// # Errors
    ///
    /// Fails if the key is already armed, and otherwise like [`insert`](Self::insert). The error
    /// contains `value`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::Builder;
    /// use tourbillon::keyed::{InsertAbsentError, KeyedTimers};
    ///
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(timers.insert_if_absent("key", 1, minute), Ok(()));
    /// assert_eq!(timers.insert_if_absent("key", 2, minute), Err(InsertAbsentError::Armed(2)));
    /// assert_eq!(timers.get("key"), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_if_absent(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<(), InsertAbsentError<V>> {
        let armed = self.merge_when(key, value, When::After(delay), |_, value| Some(value));
        match armed {
            Ok(None) => Ok(()),
            Ok(Some(value)) => Err(InsertAbsentError::Armed(value)),
            Err(refused) => Err(InsertAbsentError::Refused(refused)),
        }
    }

    /// Merges `value` into the value of `key` if the key is armed, and otherwise arms the key with
    /// it, to fire `delay` from now. Returns `true` if the value was merged. The deadline then
    /// stays.
    ///
    /// O(1). `merge` runs under the lock of the key and must not use the timers.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// Events that are sent in batches by key, each batch at most a second after its first event:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock, keyed::KeyedTimers};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let batches = KeyedTimers::new(wheel);
    /// for event in ["login", "click", "logout"] {
    ///     let second = Duration::from_secs(1);
    ///     batches.insert_or_merge("peer 7", vec![event], second, |batch, mut event| {
    ///         batch.append(&mut event);
    ///     })?;
    ///     clock.advance(Duration::from_millis(300));
    /// }
    /// clock.advance(Duration::from_millis(100));
    /// let mut sent = Vec::new();
    /// let _ = sweeper.sweep(|timer| sent.extend(batches.fire(timer)));
    /// assert_eq!(sent, [("peer 7", vec!["login", "click", "logout"])]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_or_merge(
        &self,
        key: K,
        value: V,
        delay: Duration,
        merge: impl FnOnce(&mut V, V),
    ) -> Result<bool, InsertError<V>> {
        let merged = self.merge_when(key, value, When::After(delay), |old, value| {
            merge(old, value);
            Some(())
        })?;
        Ok(merged.is_some())
    }

    /// Changes the value of `key` in place if the key is armed. The deadline stays.
    ///
    /// O(1). `change` runs under the lock of the key and must not use the timers.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon::{Builder, keyed::KeyedTimers};
    /// # let (wheel, _sweeper) = Builder::new().build()?;
    /// # let timers = KeyedTimers::new(wheel);
    /// timers.insert("key", 1, Duration::from_secs(60))?;
    /// assert_eq!(timers.update("key", |value| std::mem::replace(value, 2)), Some(1));
    /// assert_eq!((timers.get("key"), timers.update("another", |_| ())), (Some(2), None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update<Q, R>(&self, key: &Q, change: impl FnOnce(&mut V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.shared.map.change(key, |_, state| state.value().map(change)).flatten()
    }

    /// Calls `merge` with the value of an armed key and the new value. Returns `None` if the key
    /// was not armed, and now is with the new value.
    fn merge_when<R>(
        &self,
        key: K,
        value: V,
        when: When,
        merge: impl FnOnce(&mut V, V) -> Option<R>,
    ) -> Result<Option<R>, InsertError<V>> {
        self.shared.map.enter(key, |key, state| match state {
            Some(state) => match state.value() {
                Some(old) => (None, Ok(merge(old, value))),
                None => {
                    let armed = self.replace(key, state, value, when, OwnerId::NONE);
                    (None, armed.map(|_| None))
                }
            },
            None => self.arm_new(key, value, when, OwnerId::NONE),
        })
    }
}
