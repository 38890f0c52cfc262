//! [`Unfired`]: a timer that was returned before it fired.

#![forbid(unsafe_code)]

use crate::wheel::id::TimerId;
use std::time::Instant;

/// A timer that was cancelled or drained before it fired.
///
/// # Examples
///
/// Moving the timers of one wheel to another, each with its deadline:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Unfired, Builder, ManualClock};
///
/// let clock = ManualClock::new();
/// let (old, _sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let (new, _sweeper) = Builder::new().clock(clock).build()?;
/// old.insert("request 7", Duration::from_secs(5))?;
/// old.insert("request 8", Duration::from_secs(9))?;
///
/// old.close();
/// for Unfired { value, deadline, .. } in old.drain() {
///     new.insert_at(value, deadline)?;
/// }
/// assert_eq!((old.len(), new.len()), (0, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfired<T> {
    /// The value that was inserted.
    pub value: T,
    /// The id of the timer, which now refers to nothing.
    pub id: TimerId,
    /// The deadline of the timer, rounded up to the wheel's resolution.
    pub deadline: Instant,
}
