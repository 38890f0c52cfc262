//! What a sweep hands over, and what it reports: [`Expired`] and [`SweepReport`].

#![forbid(unsafe_code)]

use crate::wheel::id::TimerId;
use std::time::Instant;

/// A timer that was due, handed over by a sweep.
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
    /// What was inserted.
    pub value: T,
    /// The timer's id, which now refers to nothing.
    pub id: TimerId,
    /// When it was due, rounded up to the wheel's resolution; rounded down, if that had passed when
    /// it was set.
    pub deadline: Instant,
}

/// What a sweep did, and when the next is wanted.
///
/// # Examples
///
/// The time-out for the next poll of an event loop:
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
    /// How many timers were handed over.
    pub expired: usize,
    /// Whether everything that was due has been handed over; `false` only for a
    /// [bounded sweep](crate::Sweeper::sweep_some) that has reached one of its limits.
    pub finished: bool,
    /// As [`Sweeper::next_deadline`](crate::Sweeper::next_deadline).
    pub next_deadline: Option<Instant>,
}
