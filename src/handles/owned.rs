//! [`OwnedTimer`]: a timer that is cancelled when its owner is dropped.

#![forbid(unsafe_code)]

use crate::{InsertError, TimerId, Wheel};
use std::fmt;
use std::time::Duration;

/// Cancels a timer when it is dropped. For the timeout of a connection or a request, which must not
/// outlive it, even if that ends by a panic or an early return.
///
/// Resets use its [`id`](Self::id). It keeps the wheel alive, but not the sweeper or the driver. If
/// the timer has already fired, dropping the owner has no effect.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// {
///     let idle = wheel.insert_owned("connection 7", Duration::from_secs(30))?;
///     assert!(wheel.reset(idle.id(), Duration::from_secs(60))?); // a packet
/// } // it closes
/// assert!(wheel.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the timer"]
pub struct OwnedTimer<T: Send> {
    wheel: Wheel<T>,
    id: TimerId,
    released: bool,
}

impl<T: Send> Wheel<T> {
    /// Arms a timer, as [`insert`](Self::insert) does, and returns an owner that cancels it when it
    /// is dropped. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let request = wheel.insert_owned("request", Duration::from_secs(1))?;
    /// assert!(wheel.contains(request.id()));
    /// drop(request);
    /// assert!(wheel.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_owned(&self, value: T, delay: Duration) -> Result<OwnedTimer<T>, InsertError<T>> {
        self.insert(value, delay).map(|id| self.own(id))
    }

    /// Creates an owner for an armed timer. The owner cancels the timer when it is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let deadline = Instant::now() + Duration::from_secs(1);
    /// let request = wheel.own(wheel.insert_at("request", deadline)?);
    /// assert_eq!(request.cancel(), Some("request"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn own(&self, id: TimerId) -> OwnedTimer<T> {
        OwnedTimer { wheel: self.clone(), id, released: false }
    }
}

impl<T: Send> OwnedTimer<T> {
    /// Returns the id of the timer.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id
    }

    /// Releases the timer, which then continues without an owner, and returns its id.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let id = wheel.insert_owned("request", Duration::from_secs(1))?.into_id();
    /// assert!(wheel.contains(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "the timer has no owner any more"]
    pub fn into_id(mut self) -> TimerId {
        self.released = true;
        self.id
    }

    /// Cancels the timer and returns its value if it has not fired. O(1), lock-free.
    #[must_use = "dropping the owner cancels, too"]
    pub fn cancel(mut self) -> Option<T> {
        self.released = true;
        self.wheel.cancel(self.id)
    }
}

impl<T: Send> Drop for OwnedTimer<T> {
    fn drop(&mut self) {
        if !self.released {
            drop(self.wheel.cancel(self.id));
        }
    }
}

impl<T: Send> fmt::Debug for OwnedTimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedTimer").field(&self.id).finish()
    }
}
