//! [`Stats`], statistics of a store.

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, system};
use crate::model::key::Key;
use std::time::{Duration, SystemTime};

/// Statistics of a store, returned by [`DurableTimers::stats`](crate::DurableTimers::stats).
///
/// Each timer is counted as resting, leased or paused. An overdue timer is also counted as resting
/// or leased.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_durable::{DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-stats-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let hour = Duration::from_secs(3600);
///     timers.insert("order 7", "unpaid", SystemTime::now() - hour, Options::new()).await?;
///     timers.insert("order 8", "unpaid", hour, Options::new()).await?;
///     let stats = timers.stats().await?;
///     assert_eq!((stats.timers, stats.resting, stats.overdue), (2, 2, 1));
///     assert!(stats.lag() >= hour); // no worker runs
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The number of timers, without dead letters. It is the sum of the next three numbers.
    pub timers: u64,
    /// The number of timers that wait for their due time, for a retry, or for a worker. Timers that
    /// are retried are not counted by themselves, because no store keeps their number.
    /// [`list_state`](crate::DurableTimers::list_state) lists them.
    pub resting: u64,
    /// The number of timers with an attempt that is running, or was running when its worker died.
    pub leased: u64,
    /// The number of timers that are [paused](crate::DurableTimers::pause_timer), without timers
    /// whose attempt is still running.
    pub paused: u64,
    /// The number of timers that a worker could lease now, because they are due or their lease has
    /// run out. They are counted even while the store is paused.
    pub overdue: u64,
    /// The earliest due time of a timer that is not paused. The due time of a leased timer is the
    /// end of its lease.
    pub oldest_due: Option<SystemTime>,
    /// The number of dead letters.
    pub dead_letters: u64,
    /// `true` if the store is [paused](crate::DurableTimers::pause).
    pub store_paused: bool,
    /// The time of the store's clock, or the latest time among the clocks of several servers.
    pub now: SystemTime,
}

impl Stats {
    /// Returns how long the oldest timer has been overdue, or zero if no timer is.
    ///
    /// If the lag grows while the store is not paused, then either no worker is running or the
    /// workers cannot keep up.
    #[must_use]
    pub fn lag(&self) -> Duration {
        let late = self.oldest_due.and_then(|oldest| self.now.duration_since(oldest).ok());
        late.unwrap_or_default()
    }
}

/// The numbers of a part of a store, or of one step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) now: Millis,
    pub(crate) timers: u64,
    pub(crate) leased: u64,
    /// The number of keys behind the keys of all timers that are not paused.
    pub(crate) parked: u64,
    /// The number of keys that are due.
    pub(crate) overdue: u64,
    pub(crate) oldest: Option<Millis>,
    pub(crate) dead: u64,
    pub(crate) paused: bool,
    /// The first key of the next step, which counts only keys.
    pub(crate) next: Option<Key>,
}

impl Counts {
    /// Adds the numbers of another part or of the next step.
    pub(crate) fn add(self, other: Self) -> Self {
        Self {
            now: self.now.max(other.now),
            timers: self.timers + other.timers,
            leased: self.leased + other.leased,
            parked: self.parked + other.parked,
            overdue: self.overdue + other.overdue,
            oldest: self.oldest.into_iter().chain(other.oldest).min(),
            dead: self.dead + other.dead,
            paused: self.paused || other.paused,
            next: other.next,
        }
    }
}

impl From<Counts> for Stats {
    fn from(counts: Counts) -> Self {
        let Counts { now, timers, leased, parked, overdue, oldest, dead, paused, .. } = counts;
        Self {
            timers,
            resting: timers.saturating_sub(leased).saturating_sub(parked),
            leased,
            paused: parked,
            overdue,
            oldest_due: oldest.map(system),
            dead_letters: dead,
            store_paused: paused,
            now: system(now),
        }
    }
}
