//! [`Expired`] and [`SweepReport`]: the timers that a sweep hands over, and its result.

#![forbid(unsafe_code)]

use crate::wheel::id::TimerId;
use std::time::Instant;

/// A due timer, handed over by a sweep.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, Expired, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let request = wheel.insert("request 7", Duration::from_secs(5))?;
///
/// clock.advance(Duration::from_secs(6)); // swept a second late
/// let sweep = sweeper.sweep(|Expired { value, id, deadline }| {
///     assert_eq!((value, id), ("request 7", request));
///     assert_eq!(wheel.clock().now() - deadline, Duration::from_secs(1));
///     assert_eq!(wheel.cancel(id), None); // the id refers to nothing any more
/// });
/// assert_eq!(sweep.expired, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// The value that was inserted.
    pub value: T,
    /// The id of the timer, which now refers to nothing.
    pub id: TimerId,
    /// The deadline of the timer, rounded up to the wheel's resolution. A deadline that had already
    /// passed when it was set is rounded down.
    pub deadline: Instant,
}

/// The result of a sweep, with the time of the next one.
///
/// # Examples
///
/// The timeout for the next poll of an event loop:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// wheel.insert("now", Duration::ZERO)?;
/// wheel.insert("later", Duration::from_secs(1))?;
///
/// let sweep = sweeper.sweep_some(256, |timer| assert_eq!(timer.value, "now"));
/// let timeout = match sweep.finished {
///     true => sweep.next_deadline.map(|next| next.saturating_duration_since(clock.start())),
///     false => Some(Duration::ZERO), // more is due
/// };
/// assert_eq!(sweep.expired, 1);
/// assert!(timeout.is_some_and(|timeout| timeout <= Duration::from_secs(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct SweepReport {
    /// The number of timers handed over.
    pub expired: usize,
    /// `true` if every due timer has been handed over. `false` only if a [bounded
    /// sweep](crate::Sweeper::sweep_some) reached one of its limits.
    pub finished: bool,
    /// The time of the next sweep. See [`Sweeper::next_deadline`](crate::Sweeper::next_deadline).
    pub next_deadline: Option<Instant>,
}
