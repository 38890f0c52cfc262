//! The errors of the public operations. Each message states what was wrong and what is allowed.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The error of a deadline that is beyond the range of the wheel.
///
/// # Examples
///
/// A timer that is armed as far ahead as the wheel allows, and again when that time has passed:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// let licence = wheel.insert("licence", Duration::from_secs(86_400))?;
/// let century = Duration::from_secs(100 * 365 * 86_400);
/// let beyond = wheel.reset(licence, century).unwrap_err();
/// assert_eq!((beyond.longest, beyond.unswept), (wheel.longest_delay(), false));
/// assert!(wheel.reset(licence, beyond.longest)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeyondRange {
    /// The longest delay that the wheel accepts.
    pub longest: Duration,
    /// `true` if the deadline is within [`longest`](Self::longest), and was refused only because
    /// the wheel was not swept for more than 2^36 ticks (19 hours at 1 µs, 2.2 years at 1 ms). The
    /// sweeper's [waker](crate::Builder::waker) has been called, and the same call succeeds after
    /// the next sweep. A [`Driver`](crate::Driver) sweeps often enough, unless its bound on timers
    /// in flight holds it back for as long.
    pub unswept: bool,
}

impl fmt::Display for BeyondRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unswept {
            return f.write_str("the wheel was not swept for too long (sweep it and try again)");
        }
        write!(
            f,
            "the deadline is out of range: it must be at most {} from now",
            Rounded(self.longest)
        )
    }
}

/// Displays a duration in the largest unit that fits at least twice, rounded down to two decimals.
/// A duration of less than two hours is displayed in full.
struct Rounded(Duration);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A year of the Julian calendar.
        let units = [(31_557_600, "years"), (86_400, "days"), (3600, "hours")];
        let seconds = self.0.as_secs();
        let Some((unit, name)) = units.into_iter().find(|(unit, _)| seconds >= 2 * unit) else {
            return write!(f, "{:?}", self.0);
        };
        let (whole, hundredths) = (seconds / unit, seconds % unit * 100 / unit);
        write!(f, "{whole}.{hundredths:02} {name}")
    }
}

impl Error for BeyondRange {}

/// The reason why an insert was refused.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Refusal};
///
/// let (wheel, _sweeper) = Builder::new().capacity(1).shards(1).build()?;
/// let minute = Duration::from_secs(60);
/// wheel.insert("connection 7", minute)?;
///
/// let status = match wheel.insert("connection 8", minute).map_err(Refusal::from) {
///     Ok(_) => 200,
///     Err(Refusal::BeyondRange(_)) => 400,
///     Err(_) => 503, // closed, at its capacity, or out of memory: try again elsewhere
/// };
/// assert_eq!(status, 503);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The wheel has been closed, or its sweeper or driver has been dropped.
    Closed,
    /// The wheel holds as many armed timers as its capacity allows.
    AtCapacity {
        /// The capacity of the wheel.
        capacity: u64,
    },
    /// The deadline is beyond the wheel's range.
    BeyondRange(BeyondRange),
    /// The system has no memory for another timer, because the address space is limited (`ulimit
    /// -v`) or the process has reached its limit of mappings (`vm.max_map_count`). Inserts succeed
    /// again when enough timers have ended. If a reset, a sweep, or an insert that races with a
    /// sweep finds no memory either, the process ends, as it does when a `Vec` cannot grow.
    OutOfMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Closed => {
                f.write_str("the wheel was closed, or its sweeper or driver was dropped")
            }
            Refusal::AtCapacity { capacity } => {
                write!(f, "the wheel has reached its capacity of {capacity} armed timers")
            }
            Refusal::BeyondRange(beyond) => beyond.fmt(f),
            Refusal::OutOfMemory => f.write_str("out of memory for another timer"),
        }
    }
}

impl Error for Refusal {}

/// The error of a refused operation: the reason, and the value that was passed in.
///
/// # Examples
///
/// The value of a refused insert is not lost:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Refusal, Refused};
///
/// let (wheel, _sweeper) = Builder::new().build()?;
/// wheel.close();
/// let refused = wheel.insert(String::from("a letter"), Duration::ZERO).unwrap_err();
/// let Refused { reason, value } = refused;
/// assert_eq!((reason, value.as_str()), (Refusal::Closed, "a letter"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Refused<R, V> {
    /// The reason for the refusal.
    pub reason: R,
    /// The value that was passed in.
    pub value: V,
}

/// The error of a refused insert.
pub type InsertError<T> = Refused<Refusal, T>;

/// The reason why a handler could not arm a timer again, with the value that was passed in.
///
/// It is returned by [`Series::arm`](crate::Series::arm) and by the tokens of keyed timers.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArmError<T> {
    /// The timer was cancelled or replaced since it fired.
    Cancelled(T),
    /// The wheel refused the timer.
    Refused(InsertError<T>),
}

impl<T> ArmError<T> {
    /// Returns the value that was not armed.
    pub fn into_value(self) -> T {
        match self {
            Self::Cancelled(value) | Self::Refused(InsertError { value, .. }) => value,
        }
    }
}

impl<T> fmt::Display for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled(_) => f.write_str("the timer was cancelled or replaced since it fired"),
            Self::Refused(refused) => refused.fmt(f),
        }
    }
}

// Without a bound on the value, which the error does not show.
impl<T> fmt::Debug for ArmError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cancelled(_) => f.debug_tuple("Cancelled").finish_non_exhaustive(),
            Self::Refused(refused) => f.debug_tuple("Refused").field(refused).finish(),
        }
    }
}

impl<T> Error for ArmError<T> {}

impl<R: fmt::Debug, V> fmt::Debug for Refused<R, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<R: fmt::Display, V> fmt::Display for Refused<R, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<R: Error, V> Error for Refused<R, V> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason.source()
    }
}

/// Keeps the reason and drops the value. This is for callers whose own error has no room for the
/// value, such as `?` on an insert of a value that is not `Sync` into a boxed error.
impl<T> From<InsertError<T>> for Refusal {
    fn from(refused: InsertError<T>) -> Self {
        refused.reason
    }
}

impl From<BeyondRange> for Refusal {
    fn from(beyond: BeyondRange) -> Self {
        Refusal::BeyondRange(beyond)
    }
}

/// The reason why a wheel or a driver could not be built.
///
/// # Examples
///
/// ```
/// use tourbillon::{BuildError, Builder};
///
/// let error = Builder::new().shards(1000).build::<u64>().unwrap_err();
/// assert!(matches!(error, BuildError::Shards(1000)));
/// assert_eq!(error.to_string(), "invalid number of shards 1000: must be between 1 and 256");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The resolution is outside 1 µs to 1 h.
    Resolution(Duration),
    /// The number of shards is outside 1 to 256.
    Shards(usize),
    /// The capacity is outside 1 to 2^30 - 256 for each shard.
    Capacity {
        /// The capacity that was requested.
        asked: u64,
        /// The largest capacity for this number of shards.
        most: u64,
    },
    /// The shape of the wheel is out of range.
    Geometry,
    /// The batch size is zero.
    Batch,
    /// The bound on timers in flight is zero.
    InFlight,
    /// The tick thread, or the worker thread of the default executor, could not be started.
    Thread(std::io::Error),
    /// The timer of a queue refused a place to it, because it is closed or has no room.
    Refused(Refusal),
    /// The system has no memory for the handler that closes the wheel of a driver in
    /// [forked child processes](crate::Driver#forked-child-processes).
    ForkHandler(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Resolution(asked) => {
                write!(f, "invalid resolution {asked:?}: must be between 1 µs and 1 h")
            }
            BuildError::Shards(asked) => {
                write!(f, "invalid number of shards {asked}: must be between 1 and 256")
            }
            BuildError::Capacity { asked, most } => {
                write!(f, "invalid capacity {asked}: must be between 1 and {most}")
            }
            BuildError::Geometry => f.write_str("the wheel's geometry is out of range"),
            BuildError::Batch => f.write_str("invalid batch size 0: must be at least 1"),
            BuildError::InFlight => {
                f.write_str("invalid bound of 0 timers in flight: must be at least 1")
            }
            BuildError::Refused(_) => f.write_str("the timer refused a place to the queue"),
            BuildError::Thread(_) => f.write_str("failed to start a thread of the driver"),
            BuildError::ForkHandler(_) => {
                f.write_str("failed to register the handler for forked child processes")
            }
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BuildError::Refused(source) => Some(source),
            BuildError::Thread(source) | BuildError::ForkHandler(source) => Some(source),
            _ => None,
        }
    }
}
