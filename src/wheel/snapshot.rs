//! [`Snapshot`]: the timers of a wheel at one time.

#![forbid(unsafe_code)]

use crate::wheel::engine::Engine;
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;
use std::time::{Duration, Instant};

/// The state of a wheel at one time, returned by [`Wheel::snapshot`].
///
/// # Examples
///
/// The distribution of a server's deadlines:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build()?;
/// for seconds in [1, 1, 30] {
///     wheel.insert("connection", Duration::from_secs(seconds))?;
/// }
/// let snapshot = wheel.snapshot();
/// let near = snapshot.ahead().filter(|(bound, _)| *bound < Duration::from_secs(5));
/// assert_eq!(near.map(|(_, timers)| timers).sum::<u64>(), 2);
/// assert_eq!(snapshot.next.map(|at| at - snapshot.taken), Some(Duration::from_secs(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time at which the snapshot was taken, by the wheel's clock.
    pub taken: Instant,
    /// The number of armed timers.
    pub armed: u64,
    /// The earliest deadline of an armed timer, which may have passed. A snapshot has no ids, since
    /// a timer must not be cancelled before its insert has returned the id.
    pub next: Option<Instant>,
    ahead: Vec<(Duration, u64)>,
}

impl Snapshot {
    /// Returns a histogram of the time left until the deadlines, as upper bounds and numbers of
    /// timers. The bounds are powers of two of the wheel's resolution. The first bucket includes
    /// timers that were due.
    pub fn ahead(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.ahead.iter().copied()
    }

    fn of<T>(engine: &Engine<T>, taken: Instant) -> Self {
        let timeline = &engine.timeline;
        let now = timeline.floor(timeline.wheel_instant(taken));
        let (mut counts, mut first) = (Vec::<u64>::new(), None::<Tick>);
        engine.for_each_armed(|deadline| {
            let bucket = deadline.since(now).max(1).next_power_of_two().ilog2() as usize;
            if counts.len() <= bucket {
                counts.resize(bucket + 1, 0);
            }
            counts[bucket] += 1;
            if first.is_none_or(|earliest| deadline < earliest) {
                first = Some(deadline);
            }
        });
        Self {
            taken,
            armed: counts.iter().sum(),
            next: first.map(|deadline| timeline.instant(deadline)),
            ahead: (0..).map(|bucket| timeline.duration(1 << bucket)).zip(counts).collect(),
        }
    }
}

impl<T: Send> Wheel<T> {
    /// Returns the state of the wheel. A timer that is inserted, reset or ended in the meantime may
    /// or may not be included. No other operation waits for a snapshot.
    ///
    /// O(entries of the wheel), some nanoseconds each. That suits a dashboard, but not every turn
    /// of an event loop. The [counters](Self::metrics) are much cheaper.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// let snapshot = wheel.snapshot();
    /// assert_eq!(snapshot.armed, 1);
    /// assert_eq!(snapshot.next, wheel.deadline(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.engine, self.shared.clock.now())
    }
}
