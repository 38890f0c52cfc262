//! [`Horizon`], the timers that are due within a day, counted by quarter of an hour.
//!
//! The first [`EXACT`] timers by due time are read and counted one by one. If they do not reach to
//! the end of the day, the store counts each later quarter up to [`MOST`] by its index. The index
//! does not distinguish a timer that rests from a timer whose lease ends at that time.

#![forbid(unsafe_code)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tourbillon_durable::{DurableError, DurableTimer, DurableTimers, ListPosition, TimerState};

/// The number of timers that are counted one by one.
const EXACT: usize = 5000;

/// The number of timers that are counted in each quarter beyond them.
const MOST: usize = 100;

/// The number of quarters of an hour in a day.
const QUARTERS: u32 = 96;

/// The length of a quarter of an hour.
pub(crate) const QUARTER: Duration = Duration::from_secs(900);

/// The number of timers that are kept to be shown.
const SHOWN: usize = 5;

/// The timers that are due within a day.
#[derive(Debug)]
pub(crate) struct Horizon {
    /// The beginning of the first quarter.
    pub(crate) start: SystemTime,
    pub(crate) quarters: Vec<Count>,
    /// The timers that wait for a retry, among the timers that were counted one by one.
    pub(crate) failing: Count,
    /// The first of them.
    pub(crate) first_failing: Vec<DurableTimer>,
    /// The first timers that rest and are not overdue.
    pub(crate) next: Vec<DurableTimer>,
    /// The number of timers that were read.
    pub(crate) read: usize,
}

/// A number of timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) timers: u64,
    /// `true` if there may be more, because not all timers were read.
    pub(crate) is_least: bool,
}

/// Returns `true` if a timer waits for its due time, for a retry, or for a worker.
pub(crate) fn waits(timer: &DurableTimer) -> bool {
    matches!(timer.state, TimerState::Resting | TimerState::Retrying)
}

impl Horizon {
    /// Reads the timers of the day that begins now.
    pub(crate) async fn read(
        timers: &DurableTimers,
        now: SystemTime,
    ) -> Result<Self, DurableError> {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let start = UNIX_EPOCH + Duration::from_secs(since - since % QUARTER.as_secs());
        let mut horizon = Self {
            start,
            quarters: vec![Count::default(); QUARTERS as usize],
            failing: Count::default(),
            first_failing: Vec::new(),
            next: Vec::new(),
            read: 0,
        };
        let Some(last) = horizon.count_exactly(timers, now).await? else { return Ok(horizon) };
        horizon.failing.is_least = true;
        let reached = last.due().duration_since(start).unwrap_or_default();
        let mut reached = (reached.as_secs() / QUARTER.as_secs()).try_into().unwrap_or(QUARTERS);
        if let Some(quarter) = horizon.quarters.get_mut(reached as usize)
            && quarter.timers > 0
        {
            quarter.is_least = true;
            reached += 1;
        }
        horizon.count(timers, reached).await?;
        Ok(horizon)
    }

    /// Returns the number of timers in all quarters.
    pub(crate) fn total(&self) -> Count {
        self.quarters.iter().fold(Count::default(), |sum, quarter| Count {
            timers: sum.timers + quarter.timers,
            is_least: sum.is_least || quarter.is_least,
        })
    }

    /// Returns the beginning of a quarter.
    pub(crate) fn time(&self, number: u32) -> SystemTime {
        self.start + QUARTER * number
    }

    /// Counts the first timers by due time. Returns the last of them if there may be more.
    async fn count_exactly(
        &mut self,
        timers: &DurableTimers,
        now: SystemTime,
    ) -> Result<Option<ListPosition>, DurableError> {
        let mut at = None;
        while self.read < EXACT {
            let page = timers.list_due(.., at.clone(), EXACT - self.read).await?;
            let Some(last) = page.last() else { return Ok(None) };
            at = Some(last.position());
            self.read += page.len();
            page.into_iter().for_each(|timer| self.add(timer, now));
        }
        Ok(at)
    }

    fn add(&mut self, timer: DurableTimer, now: SystemTime) {
        let waits = waits(&timer);
        if let Ok(ahead) = timer.due.duration_since(self.start)
            && waits
            && let Ok(number) = usize::try_from(ahead.as_secs() / QUARTER.as_secs())
            && let Some(quarter) = self.quarters.get_mut(number)
        {
            quarter.timers += 1;
        }
        if timer.state == TimerState::Retrying {
            self.failing.timers += 1;
            if self.first_failing.len() < SHOWN {
                self.first_failing.push(timer);
            }
        } else if waits && timer.due > now && self.next.len() < SHOWN {
            self.next.push(timer);
        }
    }

    /// Counts the timers of the quarters from a number on.
    async fn count(&mut self, timers: &DurableTimers, first: u32) -> Result<(), DurableError> {
        let bounds: Vec<SystemTime> = (first..=QUARTERS).map(|number| self.time(number)).collect();
        let counts = timers.count_due(&bounds, MOST).await?;
        for (quarter, timers) in self.quarters.iter_mut().skip(first as usize).zip(counts) {
            *quarter = Count { timers, is_least: timers >= MOST as u64 };
            self.read += usize::try_from(timers).unwrap_or(MOST);
        }
        Ok(())
    }
}
