//! [`StoreClock`], the wall clock of a store, and its times in milliseconds.

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon::ManualClock;

/// Milliseconds since 1970 in UTC, the unit of all times in a store.
pub(crate) type Millis = u64;

/// The latest due time, the end of the year 9999.
pub(crate) const LATEST: Millis = 253_402_300_799_999;

/// A source of wall-clock time for a store, for tests in virtual time. The time may be set forward
/// and back.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon::ManualClock;
/// use tourbillon_durable::{Embedded, StoreClock, StoreOptions};
///
/// let clock = ManualClock::new(); // a timer's, too
/// let day_in_2027 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
/// clock.set_wall(day_in_2027);
/// # let file = std::env::temp_dir().join(format!("tourbillon-wall-{}", std::process::id()));
/// let store = Embedded::open_with(&file, StoreOptions::new().clock(clock.clone()))?;
/// assert_eq!(StoreClock::now(&clock), day_in_2027);
/// # drop(store);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait StoreClock: Send + Sync + Debug + 'static {
    /// Returns the current time.
    fn now(&self) -> SystemTime;
}

/// Uses the [wall time](ManualClock::wall), so that one clock serves the store and the timer beside
/// it.
impl StoreClock for ManualClock {
    fn now(&self) -> SystemTime {
        self.wall()
    }
}

/// The wall clock of the system.
///
/// # Examples
///
/// A store whose clock is a month ahead, to see what is due then:
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_durable::{Embedded, StoreClock, StoreOptions, SystemClock};
///
/// #[derive(Debug)]
/// struct Ahead(Duration);
///
/// impl StoreClock for Ahead {
///     fn now(&self) -> SystemTime {
///         SystemClock.now() + self.0
///     }
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-ahead-{}", std::process::id()));
/// let month_ahead = StoreOptions::new().clock(Ahead(Duration::from_secs(30 * 86_400)));
/// let store = Embedded::open_with(&file, month_ahead)?;
/// # drop(store);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl StoreClock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day here")]
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Converts a duration to milliseconds, rounded down.
pub(crate) fn whole_millis(duration: Duration) -> Millis {
    u64::try_from(duration.as_millis()).unwrap_or(Millis::MAX)
}

/// Converts a duration to milliseconds, rounded up.
pub(crate) fn millis_up(duration: Duration) -> Millis {
    let whole = whole_millis(duration);
    let exact = Duration::from_millis(whole) >= duration;
    whole.saturating_add(u64::from(!exact))
}

/// Converts the current time, rounded down, so that a timer is due if its due time is not greater.
pub(crate) fn present(now: SystemTime) -> Millis {
    now.duration_since(UNIX_EPOCH).map_or(0, whole_millis).min(LATEST)
}

/// One reading of a clock, in two roundings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Present {
    /// The time rounded down. A timer is due if its due time is not greater.
    pub(crate) passed: Millis,
    /// The time rounded up. A delay counts from here, so that it passes completely.
    pub(crate) coming: Millis,
}

impl Present {
    pub(crate) fn of(now: SystemTime) -> Self {
        Self { passed: present(now), coming: due(now) }
    }
}

/// Converts a due time, rounded up so that a timer never fires early. A time before 1970 is due.
pub(crate) fn due(at: SystemTime) -> Millis {
    at.duration_since(UNIX_EPOCH).map_or(0, millis_up)
}

/// Converts a time of the store to a system time.
pub(crate) fn system(time: Millis) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(time.min(LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_is_rounded_down_and_a_due_time_up() {
        let time = UNIX_EPOCH + Duration::from_micros(1500);
        assert_eq!((present(time), due(time)), (1, 2));
        let Present { passed, coming } = Present::of(time);
        assert_eq!((passed, coming), (1, 2));
        assert_eq!((present(system(7)), due(system(7))), (7, 7));
        assert_eq!(due(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(millis_up(Duration::MAX), Millis::MAX);
    }
}
