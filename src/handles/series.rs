//! [`Series`]: a timer that its own handler arms again, and that other threads can end.

#![forbid(unsafe_code)]

use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::{ArmError, BeyondRange, TimerId, Wheel};
use std::fmt;
use std::time::Duration;

/// The word of a series that has ended. No id has this value.
const ENDED: u64 = u64::MAX;

/// A sequence of timers that can be cancelled as a whole, in which each handler arms the next
/// timer.
///
/// A handler that inserts its next timer by itself cannot be stopped. A cancel that arrives while
/// the handler runs finds the old id and cancels nothing, and the insert then arms the next timer
/// with an id that only the handler knows. A series keeps the latest id and arms no further timer
/// after a [`cancel`](Self::cancel). Store it next to the value, for example in an `Arc` that the
/// handler shares with the owner of the connection. `keyed::KeyedTimers` offers the same
/// by key.
///
/// A series takes one word of memory. Each operation on it costs one atomic exchange in addition to
/// the operation on the wheel. An `arm` that loses a race with another thread repeats both. All
/// timers of a series must belong to the same wheel.
///
/// # Examples
///
/// A heartbeat that ends with its connection:
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use std::time::Duration;
/// use tourbillon::{Builder, Expired, Series};
///
/// const PERIOD: Duration = Duration::from_millis(1);
///
/// #[derive(Default)]
/// struct Connection {
///     heartbeats: Series,
/// }
///
/// let (send, beats) = mpsc::channel();
/// let driver = Builder::new().driver().spawn_with(|wheel| {
///     move |timer: Expired<Arc<Connection>>| {
///         let connection = timer.value;
///         if !connection.heartbeats.is_cancelled() {
///             let _ = send.send(());
///             // Refused once the connection has been closed, or the driver was shut down.
///             let _ = connection.heartbeats.arm(&wheel, Arc::clone(&connection), PERIOD);
///         }
///     }
/// })?;
///
/// let connection = Arc::new(Connection::default());
/// connection.heartbeats.arm(driver.wheel(), Arc::clone(&connection), PERIOD)?;
/// beats.recv()?;
/// beats.recv()?;
/// connection.heartbeats.cancel(driver.wheel()); // it is closed
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Series(AtomicU64);

impl Series {
    /// Creates a series without a timer.
    #[must_use]
    pub fn new() -> Self {
        // 0 is not an id.
        Self(AtomicU64::new(0))
    }

    /// Arms the next timer of the series, which fires `delay` from now unless the series is
    /// cancelled.
    ///
    /// If the previous timer was still armed, its value is returned and will not fire. If two
    /// threads arm a series at the same time, the later timer replaces the earlier one in the same
    /// way. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Returns [`Cancelled`](ArmError::Cancelled) if the series was cancelled, and otherwise fails
    /// like [`Wheel::insert`]. The error contains `value`.
    pub fn arm<T: Send>(
        &self,
        wheel: &Wheel<T>,
        mut value: T,
        delay: Duration,
    ) -> Result<Option<T>, ArmError<T>> {
        // Relaxed: the exchange below fails if this is not the present word.
        let mut before = self.0.load(Relaxed);
        while before != ENDED {
            let id = wheel.insert(value, delay).map_err(ArmError::Refused)?;
            // AcqRel on success, Relaxed on failure:
            // - the Release half publishes the entry of the timer with its id, to the Acquire of
            //   `cancel`, `reset` and the next `arm`;
            // - the Acquire half observes the entry of the timer before;
            // - the word of a failed exchange is only compared, here and by the next exchange.
            match self.0.compare_exchange(before, id.to_bits(), AcqRel, Relaxed) {
                Ok(_) => {
                    return Ok(TimerId::from_bits(before).and_then(|before| wheel.cancel(before)));
                }
                // Another thread has cancelled the series or armed a timer of it, and does not know
                // this id.
                Err(now) => before = now,
            }
            match wheel.cancel(id) {
                Some(unfired) => value = unfired,
                // The timer has fired meanwhile. Its handler finds the series ended, or has already
                // armed the next timer, which must stay.
                None => return Ok(None),
            }
        }
        Err(ArmError::Cancelled(value))
    }

    /// Ends the series, which arms no further timer. Returns the value of the armed timer if and
    /// only if it will not fire. O(1), lock-free.
    ///
    /// A handler of the series that is running continues, and [`is_cancelled`](Self::is_cancelled)
    /// then returns `true`.
    pub fn cancel<T: Send>(&self, wheel: &Wheel<T>) -> Option<T> {
        // Acquire: pairs with the Release of the exchange in `arm`.
        let latest = self.0.swap(ENDED, Acquire);
        TimerId::from_bits(latest).and_then(|id| wheel.cancel(id))
    }

    /// Moves the deadline of the armed timer to `delay` from now. Returns `true` if the timer will
    /// fire then and not at its old deadline, and `false` if no timer is armed. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// Fails if the delay is beyond the wheel's range. The timer then keeps its deadline.
    pub fn reset<T: Send>(&self, wheel: &Wheel<T>, delay: Duration) -> Result<bool, BeyondRange> {
        // Acquire: pairs with the Release of the exchange in `arm`.
        let latest = self.0.load(Acquire);
        TimerId::from_bits(latest).map_or(Ok(false), |id| wheel.reset(id, delay))
    }

    /// Returns `true` after a [`cancel`](Self::cancel). A handler should check this first, because
    /// its timer may have fired while the series was being cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: implies nothing about other memory.
        self.0.load(Relaxed) == ENDED
    }
}

impl Default for Series {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Relaxed: for display only.
        let latest = self.0.load(Relaxed);
        f.debug_struct("Series")
            .field("latest", &TimerId::from_bits(latest))
            .field("cancelled", &(latest == ENDED))
            .finish()
    }
}
