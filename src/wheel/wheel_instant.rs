//! [`WheelInstant`]: a point in time on the timeline of one wheel.

#![forbid(unsafe_code)]

/// A point in time on one wheel's timeline, with nanosecond precision.
///
/// Use it instead of [`Instant`](std::time::Instant) if you store deadlines and reset them often.
/// It saves the conversions.
///
/// It is made by [`Wheel::wheel_instant`](crate::Wheel::wheel_instant) and
/// [`Wheel::wheel_instant_after`](crate::Wheel::wheel_instant_after). Later instants compare
/// greater. It is only meaningful to the wheel that made it. The timeline starts when the wheel is
/// built and ends 292 years later. Instants outside of this range are clamped to it.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let soon = wheel.wheel_instant_after(Duration::from_millis(10));
/// let later = wheel.wheel_instant_after(Duration::from_millis(20));
/// assert!(soon < later && !wheel.has_passed(soon));
///
/// let id = wheel.insert_at_wheel_instant("idle", soon)?;
/// wheel.reset_at_wheel_instant(id, later)?;
/// clock.advance(Duration::from_millis(20));
/// assert!(wheel.has_passed(later));
/// assert_eq!(sweeper.sweep(|timer| assert_eq!(timer.value, "idle")).expired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WheelInstant {
    /// Nanoseconds since the wheel was built.
    pub(crate) nanos: u64,
}

impl WheelInstant {
    /// Returns the number of nanoseconds since the wheel was built, for an instant that is kept in
    /// an atomic, say.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    /// use std::time::Duration;
    /// use tourbillon::{Builder, WheelInstant};
    ///
    /// let (wheel, _sweeper) = Builder::new().build::<()>()?;
    /// let idle = AtomicU64::new(wheel.wheel_instant_after(Duration::from_secs(60)).as_nanos());
    /// assert!(!wheel.has_passed(WheelInstant::from_nanos(idle.load(Relaxed))));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn as_nanos(self) -> u64 {
        self.nanos
    }

    /// Creates an instant from a number of nanoseconds since the wheel was built.
    #[must_use]
    #[inline]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self { nanos }
    }
}
