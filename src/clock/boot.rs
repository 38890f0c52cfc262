//! [`BootClock`]: time that goes on while the machine sleeps.

#![forbid(unsafe_code)]

use crate::clock::{Clock, MonotonicClock};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A clock that goes on while the machine is suspended (`CLOCK_BOOTTIME`), where all others stand
/// still: on a laptop or a phone, or a virtual machine that is paused, a time-out of an hour then
/// ends an hour later by the wall, not when the machine has been awake for an hour.
///
/// The system wakes no thread at a time of this clock. So no rest is longer than a
/// [bound](Self::longest_rest), 10 seconds unless it is set: what became due during the suspension
/// fires at most so long after it. An idle process wakes as often, while anything is armed.
///
/// Its instants lie on an axis of their own: take them from [`Wheel::clock`](crate::Wheel::clock),
/// not from [`Instant::now`], which falls behind with each suspension. Linux alone.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{BootClock, Builder, Clock};
///
/// let clock = BootClock::new().longest_rest(Duration::from_secs(2));
/// let (wheel, _sweeper) = Builder::new().clock(clock).build()?;
/// let hour = wheel.insert("a token is refreshed", Duration::from_secs(3600))?;
/// assert!(wheel.deadline(hour) >= Some(clock.now() + Duration::from_secs(3500)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BootClock {
    /// An instant, and what the system's clock showed then.
    start: (Instant, Duration),
    longest_rest: Duration,
}

impl BootClock {
    /// A clock whose rests are at most 10 seconds long.
    #[must_use]
    pub fn new() -> Self {
        Self { start: (MonotonicClock.now(), since_boot()), longest_rest: Duration::from_secs(10) }
    }

    /// Sets the bound on rests: how late what became due during a suspension may be after it.
    #[must_use]
    pub fn longest_rest(mut self, rest: Duration) -> Self {
        self.longest_rest = rest;
        self
    }
}

impl Default for BootClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let (instant, then) = self.start;
        instant + since_boot().saturating_sub(then)
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        Some(deadline.saturating_duration_since(self.now()).min(self.longest_rest))
    }
}

/// How long ago the machine was started, suspensions included.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{BootClock, Clock};
    use std::time::Duration;

    #[test]
    fn it_goes_on_and_its_rests_are_bounded() {
        let clock = BootClock::new().longest_rest(Duration::from_secs(2));
        let (before, now) = (clock.now(), clock.now());
        assert!(before <= now);
        assert_eq!(clock.timeout(now + Duration::from_secs(3600)), Some(Duration::from_secs(2)));
        assert!(clock.timeout(now + Duration::from_secs(1)) <= Some(Duration::from_secs(1)));
        assert_eq!(clock.timeout(before), Some(Duration::ZERO));
    }
}
