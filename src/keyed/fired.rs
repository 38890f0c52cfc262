//! [`Fired`]: a key that is due, with a [`Token`] that arms it again unless it was cancelled.

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::KeyState;
use super::timer::{KeyedTimer, TimerKind, When};
use crate::{ArmError, Expired, TimerId};
use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// A key that is due, its value, and a token that lets the handler arm the key again.
///
/// # Examples
///
/// See [`KeyedTimers::spawn_with`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Fired<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// The key.
    pub key: K,
    /// The value of the key.
    pub value: V,
    /// The token that arms the key again.
    pub token: Token<K, V>,
}

/// A token that arms a fired key again, unless the key was cancelled or inserted again since.
///
/// A handler that calls `insert` cannot detect a concurrent [`cancel`](KeyedTimers::cancel). The
/// cancel finds nothing while the handler runs, and the insert then arms the key again. While a
/// token exists, a cancel of its key, an insert, a [`drain`](KeyedTimers::drain), a
/// [`shutdown`](KeyedTimers::shutdown) or the drop of an [`OwnedKey`](super::OwnedKey) invalidates
/// the token. The key counts as not armed during that time.
pub struct Token<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    timers: KeyedTimers<K, V>,
    key: K,
    /// The timer that fired.
    id: TimerId,
}

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Behaves like [`fire`](Self::fire), and also returns a token that can arm the key again.
    ///
    /// # Panics
    ///
    /// Panics like [`fire`](Self::fire).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock, keyed::KeyedTimers};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let timers = KeyedTimers::new(wheel);
    /// timers.insert("heartbeat", 0, Duration::from_secs(1))?;
    /// for beat in 0..3 {
    ///     clock.advance(Duration::from_secs(1));
    ///     let _ = sweeper.sweep(|expired| {
    ///         if let Some(fired) = timers.fire_with_token(expired) {
    ///             assert_eq!(fired.value, beat);
    ///             let again = fired.token.rearm(fired.value + 1, Duration::from_secs(1));
    ///             assert!(again.is_ok());
    ///         }
    ///     });
    /// }
    /// assert_eq!(timers.cancel("heartbeat"), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the value has not been handled yet"]
    pub fn fire_with_token(&self, expired: Expired<KeyedTimer<K>>) -> Option<Fired<K, V>> {
        let (key, id) = match expired.value.0 {
            TimerKind::Key(key) => (key, expired.id),
            TimerKind::Part(part) => {
                part.run_or_resume();
                return None;
            }
        };
        let vacate = |_: &K, state: &mut KeyState<V>| {
            let value = (state.id == id).then(|| state.vacate()).flatten();
            value.inspect(|_| self.shared.count_vacated())
        };
        let value = self.shared.map.change(&key, vacate).flatten()?;
        let timers = Self { guard: None, ..self.clone() };
        Some(Fired { value, token: Token { timers, key: key.clone(), id }, key })
    }
}

impl<K, V> Token<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Arms the key again, with `value`, to fire `delay` from now. If the key had an owner, the
    /// owner keeps it. O(1), under the lock of the key.
    ///
    /// # Errors
    ///
    /// Fails if the key was cancelled or replaced since it fired, and otherwise like
    /// [`KeyedTimers::insert`]. The error contains `value`.
    pub fn rearm(self, value: V, delay: Duration) -> Result<(), ArmError<V>> {
        self.rearm_when(value, When::After(delay))
    }

    /// Arms the key again, as [`rearm`](Self::rearm) does, to fire at `deadline`. If that has
    /// passed, the key fires at the next sweep.
    ///
    /// # Errors
    ///
    /// Fails like [`rearm`](Self::rearm).
    pub fn rearm_at(self, value: V, deadline: Instant) -> Result<(), ArmError<V>> {
        self.rearm_when(value, When::At(deadline))
    }

    /// Returns `true` if the key was cancelled or replaced since it fired. A long-running handler
    /// can call this to stop early. The result may change to `true` at any time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let map = &self.timers.shared.map;
        !map.read(&self.key, |state| state.is_vacated_by(self.id)).unwrap_or(false)
    }

    /// Arms the key again at a delay or a deadline, if this token is still valid.
    fn rearm_when(self, value: V, when: When) -> Result<(), ArmError<V>> {
        let timers = &self.timers;
        let mut left = Some(value);
        let rearmed = timers.shared.map.change(&self.key, |key, state| {
            if state.is_vacated_by(self.id) {
                let value = left.take()?;
                Some(timers.replace(key, state, value, when, state.owner))
            } else {
                None
            }
        });
        match (rearmed.flatten(), left) {
            (Some(Ok(_)), _) => Ok(()),
            (Some(Err(refused)), _) => Err(ArmError::Refused(refused)),
            (None, Some(value)) => Err(ArmError::Cancelled(value)),
            (None, None) => unreachable!("the value was armed, refused or is left"),
        }
    }
}

impl<K, V> Drop for Token<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        let shared = &self.timers.shared;
        if let Some((_, state)) =
            shared.map.remove_if(&self.key, |state| state.is_vacated_by(self.id))
        {
            drop(shared.value_of(state));
        }
    }
}

impl<K, V> fmt::Debug for Token<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("id", &self.id).finish_non_exhaustive()
    }
}
