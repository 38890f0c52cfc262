//! [`BootClock`]: a clock that continues while the machine sleeps.

#![forbid(unsafe_code)]

use crate::clock::{Clock, MonotonicClock};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// A clock that continues while the machine is suspended (`CLOCK_BOOTTIME`). Linux only.
///
/// All other clocks stand still then. On a laptop, a phone or a virtual machine that is paused, a
/// timeout of an hour with this clock ends an hour later in real time, and not after the machine
/// has been awake for an hour.
///
/// The system wakes no thread at a time of this clock. Each rest of the sweeper is therefore
/// limited to a [bound](Self::longest_rest), 10 seconds by default. A timer whose deadline passes
/// during a suspension fires at most that long after it. An idle process wakes at the same interval
/// while any timer is armed.
///
/// A repetition that is due each minute misses 480 runs in a night of eight hours. A closure of
/// [`every`](crate::scheduler::Scheduler::every) on this clock, or an interval, therefore
/// [skips](crate::scheduler::MissedTickBehavior::Skip) missed runs by default, and runs once after
/// the night.
///
/// Do not compare the instants of this clock with [`Instant::now`], which falls behind with each
/// suspension. Take them from [`Wheel::clock`](crate::Wheel::clock).
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
    /// An instant, and the reading of the system's clock at that instant.
    start: (Instant, Duration),
    longest_rest: Duration,
}

impl BootClock {
    /// Creates a clock whose rests last at most 10 seconds.
    #[must_use]
    pub fn new() -> Self {
        Self { start: (MonotonicClock.now(), since_boot()), longest_rest: Duration::from_secs(10) }
    }

    /// Sets the bound on rests. A timer whose deadline passed during a suspension may be late by
    /// that much.
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

    fn counts_suspension(&self) -> bool {
        true
    }
}

/// Returns the time since the machine was started, including suspensions.
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
