//! Methods of the sweeper for event loops and tests: the time to wait, and leaps in virtual time.

#![forbid(unsafe_code)]

use crate::clock::{Clock, ManualClock};
use crate::wheel::sweep::report::{Expired, SweepReport};
use crate::wheel::sweep::sweeper::Sweeper;
use std::time::Duration;

impl<T: Send> Sweeper<T> {
    /// Returns the time for which an event loop may wait before the next sweep. Use it as the
    /// timeout of the poll. It is system time, computed from the wheel's own clock.
    ///
    /// Returns `None` if the loop has to wait until it is woken, because nothing is armed or
    /// because the clock only moves when told to. Otherwise see
    /// [`next_deadline`](Self::next_deadline).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, mut sweeper) = tourbillon::Builder::new().build()?;
    /// assert_eq!(sweeper.timeout(), None);
    /// wheel.insert("soon", Duration::from_secs(1))?;
    /// assert!(sweeper.timeout() <= Some(Duration::from_secs(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout(&mut self) -> Option<Duration> {
        let deadline = self.next_deadline()?;
        self.clock().timeout(deadline)
    }

    /// Advances the wheel's clock to the next instant at which a timer fires, and sweeps. Virtual
    /// time thus leaps over all idle time. If a timer is already due, it fires without a leap.
    ///
    /// Returns `None`, and fires nothing, if nothing is armed or the wheel does not use this clock.
    /// O(slots on the way), plus the cost of the sweep.
    ///
    /// # Examples
    ///
    /// A day of heartbeats in no time:
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// let hour = Duration::from_secs(3600);
    /// wheel.insert(1, hour)?;
    /// let mut beats = 0;
    /// while beats < 24 {
    ///     sweeper.advance(&clock, |timer| beats = timer.value);
    ///     wheel.insert(beats + 1, hour)?;
    /// }
    /// assert_eq!(clock.elapsed(), 24 * hour);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn advance(
        &mut self,
        clock: &ManualClock,
        mut on_expired: impl FnMut(Expired<T>),
    ) -> Option<SweepReport> {
        loop {
            let next = self.next_deadline()?;
            clock.advance(next.saturating_duration_since(clock.now()));
            if self.clock().now() < next {
                return None;
            }
            // A slot that has expired may hold only timers that are due later, or none.
            let sweep = self.sweep(&mut on_expired);
            if sweep.expired > 0 {
                return Some(sweep);
            }
        }
    }
}
