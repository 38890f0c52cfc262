//! What event loops and tests ask a sweeper beside its sweeps: how long to wait, and to leap in
//! virtual time.

#![forbid(unsafe_code)]

use crate::clock::{Clock, ManualClock};
use crate::wheel::sweep::report::{Expired, SweepReport};
use crate::wheel::sweep::sweeper::Sweeper;
use std::time::Duration;

impl<T: Send> Sweeper<T> {
    /// How long an event loop may wait for the next sweep: the time-out of its poll, in the
    /// system's time, by the wheel's own clock.
    ///
    /// `None`: until it is woken, since nothing is armed, or the clock moves only when it is told
    /// to. Otherwise as [`next_deadline`](Self::next_deadline).
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

    /// Moves the wheel's clock to the next instant at which a timer fires, and sweeps: virtual time
    /// that leaps over all that is idle. A timer that is due already fires without a leap.
    ///
    /// `None`, and nothing has fired: nothing is armed, or the wheel does not run by this clock.
    /// O(slots on the way), and what the sweep takes.
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
            // A slot whose expiry has come may hold timers that are due later, or none.
            let sweep = self.sweep(&mut on_expired);
            if sweep.expired > 0 {
                return Some(sweep);
            }
        }
    }
}
