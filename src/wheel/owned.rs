//! [`OwnedTimer`]: a timer that ends with its owner.

#![forbid(unsafe_code)]

use crate::error::InsertError;
use crate::wheel::handle::Wheel;
use crate::wheel::id::TimerId;
use std::fmt;
use std::time::Duration;

/// An id that cancels its timer when it is dropped: for a time-out that belongs to a connection or
/// a request, and must not outlive it, also when that ends by a panic or an early return.
///
/// Its [`id`](Self::id) is for resets. It keeps the wheel, not its sweeper or driver. Dropped
/// after its timer has fired it does nothing.
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
pub struct OwnedTimer<T> {
    wheel: Wheel<T>,
    id: TimerId,
    let_go: bool,
}

impl<T: Send> Wheel<T> {
    /// As [`insert`](Self::insert), for a timer that is cancelled when the returned owner is
    /// dropped. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
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

    /// The owner of a timer that was armed by any of the ways to do so: it cancels the timer when
    /// it is dropped.
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
        OwnedTimer { wheel: self.clone(), id, let_go: false }
    }
}

impl<T> OwnedTimer<T> {
    /// Returns the id of the timer.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.id
    }

    /// Lets the timer live on without an owner. Returns its id.
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
        self.let_go = true;
        self.id
    }
}

impl<T: Send> OwnedTimer<T> {
    /// Ends the timer: its value, if it has not fired. O(1), lock-free.
    #[must_use = "dropping the owner cancels, too"]
    pub fn cancel(mut self) -> Option<T> {
        self.let_go = true;
        self.wheel.cancel(self.id)
    }
}

impl<T> Drop for OwnedTimer<T> {
    fn drop(&mut self) {
        if !self.let_go {
            drop(self.wheel.inner.cancel(self.id));
        }
    }
}

impl<T> fmt::Debug for OwnedTimer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnedTimer").field(&self.id).finish()
    }
}
