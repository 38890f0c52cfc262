//! [`Series`]: a timer that its own handler arms again, and that other threads can end.

#![forbid(unsafe_code)]

use crate::error::InsertError;
use crate::sync::{AcqRel, Acquire, AtomicU64, Relaxed};
use crate::wheel::handle::Wheel;
use crate::wheel::id::TimerId;
use std::fmt;
use std::time::Duration;

/// The word of a series that has ended; that of no id.
const ENDED: u64 = u64::MAX;

/// The timers of which each is armed by the handler of the one before, as one that can be
/// cancelled.
///
/// A handler that inserts its next timer by itself cannot be stopped: a cancel that comes while it
/// runs finds the old id and ends nothing, and the insert arms the next timer with an id that only
/// the handler knows. A series keeps the latest id, and after a [`cancel`](Self::cancel) it arms no
/// timer any more. It lies beside the value, for example in an `Arc` that the handler shares with
/// the owner of the connection. [`KeyedTimers`](crate::keyed) do the same by key.
///
/// Its memory is one word, and an operation on it costs one atomic exchange beside that of the
/// wheel. All its timers are of one wheel.
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

/// Why a [`Series`] did not arm a timer; the value comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError<T> {
    /// The series was cancelled, or another thread armed a timer of it at the same time.
    Cancelled(T),
    /// The wheel refused the timer.
    Refused(InsertError<T>),
}

impl<T> ArmError<T> {
    /// The value that was not armed.
    pub fn into_value(self) -> T {
        match self {
            Self::Cancelled(value) | Self::Refused(InsertError { value, .. }) => value,
        }
    }
}

impl<T> fmt::Display for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled(_) => f.write_str("the series of timers was cancelled"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

impl<T: fmt::Debug> std::error::Error for ArmError<T> {}

impl Series {
    /// A series without a timer.
    #[must_use]
    pub fn new() -> Self {
        // No id is 0.
        Self(AtomicU64::new(0))
    }

    /// Arms the next timer of the series: it fires `delay` from now, unless the series is
    /// cancelled. If a timer of the series was armed still, its value comes back and will not fire.
    /// O(1), lock-free.
    ///
    /// # Errors
    ///
    /// The series was cancelled, or as [`Wheel::insert`]; `value` comes back.
    pub fn arm<T: Send>(
        &self,
        wheel: &Wheel<T>,
        value: T,
        delay: Duration,
    ) -> Result<Option<T>, ArmError<T>> {
        // Relaxed: the exchange below fails if this is not the present word.
        let before = self.0.load(Relaxed);
        if before == ENDED {
            return Err(ArmError::Cancelled(value));
        }
        let id = wheel.insert(value, delay).map_err(ArmError::Refused)?;
        // AcqRel: the Release half publishes the entry of the timer with its id, to the Acquire of
        // `cancel`, `reset` and the next `arm`; the Acquire half sees that of the timer before.
        // Relaxed on failure: the word is not used.
        if self.0.compare_exchange(before, id.to_bits(), AcqRel, Relaxed).is_ok() {
            return Ok(TimerId::from_bits(before).and_then(|before| wheel.cancel(before)));
        }
        // A cancel did not know this id. If the timer has fired by now, its handler finds the
        // series ended; or that handler has armed the next timer already.
        wheel.cancel(id).map_or(Ok(None), |value| Err(ArmError::Cancelled(value)))
    }

    /// Ends the series: no timer of it is armed any more. Returns the value of the timer that was
    /// armed, if and only if it will not fire. O(1), lock-free.
    ///
    /// If a handler of the series runs, it goes on, and finds
    /// [`is_cancelled`](Self::is_cancelled) set.
    pub fn cancel<T: Send>(&self, wheel: &Wheel<T>) -> Option<T> {
        // Acquire: pairs with the Release of the exchange in `arm`.
        let latest = self.0.swap(ENDED, Acquire);
        TimerId::from_bits(latest).and_then(|id| wheel.cancel(id))
    }

    /// Moves the deadline of the timer that is armed to `delay` from now. Returns `true` if it
    /// fires then and not at its old deadline, and `false` if none is armed. O(1), lock-free.
    ///
    /// # Errors
    ///
    /// The delay is beyond the wheel's range; the timer keeps its deadline.
    pub fn reset<T: Send>(
        &self,
        wheel: &Wheel<T>,
        delay: Duration,
    ) -> Result<bool, crate::error::BeyondRange> {
        // Acquire: pairs with the Release of the exchange in `arm`.
        let latest = self.0.load(Acquire);
        TimerId::from_bits(latest).map_or(Ok(false), |id| wheel.reset(id, delay))
    }

    /// Returns `true` after a [`cancel`](Self::cancel). A handler looks first, because its timer
    /// may have fired while the series was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: says nothing of other memory.
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
        // Relaxed: a figure.
        let latest = self.0.load(Relaxed);
        f.debug_struct("Series")
            .field("latest", &TimerId::from_bits(latest))
            .field("cancelled", &(latest == ENDED))
            .finish()
    }
}
