//! [`OwnedKey`]: a key that is cancelled when its owner is dropped.

#![forbid(unsafe_code)]

use super::KeyedTimers;
use super::shared::OwnerId;
use super::timer::When;
use crate::InsertError;
use std::fmt;
use std::hash::Hash;
use std::time::Duration;

/// Cancels a key when it is dropped, unless another insert has armed the key since. Use it for the
/// timer of a connection or a request, which must not outlive it.
///
/// If a peer reconnects before its old connection is gone, the end of the old one does not affect
/// the timer of the new one. A reset by the key does not change the owner. The owner does not keep
/// the driver running.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, keyed::KeyedTimers};
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// let timers = KeyedTimers::new(wheel);
/// let minute = Duration::from_secs(60);
/// let (old, _) = timers.insert_owned("peer 7", 1, minute)?;
/// let (new, replaced) = timers.insert_owned("peer 7", 2, minute)?; // it comes back
/// assert_eq!(replaced, Some(1));
/// drop(old);
/// assert_eq!(timers.get("peer 7"), Some(2));
/// drop(new);
/// assert!(timers.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the key"]
pub struct OwnedKey<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    timers: KeyedTimers<K, V>,
    key: K,
    owner: OwnerId,
    released: bool,
}

impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Arms a key, as [`insert`](Self::insert) does, and returns an owner that cancels it when it
    /// is dropped. Also returns the previous value if the key was armed.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    #[allow(clippy::type_complexity, reason = "an owner, and the value that it replaces")]
    pub fn insert_owned(
        &self,
        key: K,
        value: V,
        delay: Duration,
    ) -> Result<(OwnedKey<K, V>, Option<V>), InsertError<V>> {
        let owner = self.shared.next_owner();
        let old = self.insert_when(key.clone(), value, When::After(delay), owner)?;
        let timers = Self { guard: None, ..self.clone() };
        Ok((OwnedKey { timers, key, owner, released: false }, old))
    }
}

impl<K, V> OwnedKey<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.key
    }

    /// Releases the timer, which then continues without an owner, and returns its key.
    #[must_use = "the timer has no owner any more"]
    pub fn into_key(mut self) -> K {
        self.released = true;
        self.key.clone()
    }

    /// Cancels the timer. Returns its value if it has not fired and no other insert has armed the
    /// key since.
    #[must_use = "dropping the owner cancels, too"]
    pub fn cancel(mut self) -> Option<V> {
        self.released = true;
        self.end()
    }

    /// Cancels the key, unless another insert has armed it since.
    fn end(&self) -> Option<V> {
        self.timers.cancel_if(&self.key, |state| state.owner == self.owner)
    }
}

impl<K, V> Drop for OwnedKey<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        if !self.released {
            drop(self.end());
        }
    }
}

impl<K, V> fmt::Debug for OwnedKey<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + fmt::Debug + 'static,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedKey").field(&self.key).finish()
    }
}
