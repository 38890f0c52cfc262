//! Lists of timers by their due time and by their state, in the order of due times.

#![forbid(unsafe_code)]

use crate::api::timer::{DurableTimer, TimerState};
use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::clock::{LATEST, Millis, due, system};
use crate::model::key::{Key, first_from};
use crate::model::record::{PARKED, Record};
use crate::store::MAX_PAGE;
use futures_util::future::try_join;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::SystemTime;

/// A position in the order of [`list_due`](DurableTimers::list_due) and
/// [`list_state`](DurableTimers::list_state). It consists of a due time and an id.
///
/// Timers are listed by their due times, and timers with the same due time by their ids, byte by
/// byte. A page that begins after the position of a timer therefore begins with its successor, even
/// if millions are due at the same time. The timer itself need not exist any more.
///
/// # Examples
///
/// A server that keeps nothing between two pages. The client returns the due time and the id of the
/// last timer of its page.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tourbillon_durable::{DurableTimers, ListPosition, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-position-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
/// pollster::block_on(async {
///     for id in ["a", "b", "c"] {
///         timers.insert(id, "", noon, Options::new()).await?;
///     }
///     let position = ListPosition::new(noon, "b");
///     let page = timers.list_due(.., Some(position.clone()), 100).await?;
///     assert_eq!(page[0].id, "c");
///     assert!(position < page[0].position());
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListPosition {
    due: Millis,
    id: String,
}

impl ListPosition {
    /// Creates the position of a timer with this due time and id. The time is rounded up to
    /// milliseconds, like all due times.
    #[must_use]
    pub fn new(at: SystemTime, id: impl Into<String>) -> Self {
        Self { due: due(at), id: id.into() }
    }

    /// Returns the due time.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        system(self.due)
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the first key after the position.
    fn successor(self) -> Key {
        (self.due, Arc::from(self.id + "\0"))
    }
}

impl DurableTimer {
    /// Returns the timer's position in the lists by due time and by state, for the page after it.
    #[must_use]
    pub fn position(&self) -> ListPosition {
        ListPosition::new(self.due, &*self.id)
    }
}

/// The maximum number of keys that one step of a count reads.
const COUNTED: usize = 10_000;

/// The longest time from now until a running timer is due. A lease lasts up to one day, and the
/// clock may have been set back meanwhile.
const LEASES: Millis = 2 * 86_400_000;

impl DurableTimers {
    /// Returns up to `limit` timers whose [`due`](DurableTimer::due) time is in a range, earliest
    /// first, whatever their state. To read all of them, pass the
    /// [`position`](DurableTimer::position) of the last timer of each page as `after` until a page
    /// is empty. A page has at most 1000 timers, and fewer if they are long.
    ///
    /// The store finds the timers by their due times, so the cost depends on the page and, in
    /// Redis, on the number of partitions, and not on the number of timers. A timer that is moved
    /// between two pages may be missing or appear twice. A timer that cannot be read is left out
    /// ([`check`](Self::check) finds it).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon_durable::{DurableTimer, DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-due-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let now = SystemTime::now();
    /// let hour = Duration::from_secs(3600);
    /// pollster::block_on(async {
    ///     for (id, hours) in [("third", 9), ("first", 1), ("second", 2)] {
    ///         timers.insert(id, "", now + hours * hour, Options::new()).await?;
    ///     }
    ///     let page = timers.list_due(now..now + 5 * hour, None, 1).await?;
    ///     assert_eq!(page[0].id, "first");
    ///     let last = page.last().map(DurableTimer::position);
    ///     let page = timers.list_due(now..now + 5 * hour, last, 100).await?;
    ///     assert_eq!(page.iter().map(|timer| &*timer.id).collect::<Vec<_>>(), ["second"]);
    ///     let overdue = timers.list_due(..now, None, 100).await?;
    ///     assert!(overdue.is_empty());
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn list_due(
        &self,
        range: impl RangeBounds<SystemTime> + Send,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        // Both are rounded as due times are.
        let first = match range.start_bound() {
            Bound::Included(from) => due(*from),
            Bound::Excluded(from) => due(*from) + 1,
            Bound::Unbounded => 0,
        };
        let until = match range.end_bound() {
            Bound::Included(to) => Some(due(*to)),
            Bound::Excluded(to) => due(*to).checked_sub(1),
            Bound::Unbounded => Some(LATEST),
        };
        let (Some(until), 1..) = (until, limit) else { return Ok(Vec::new()) };
        let (from, limit) = (first_after(after).max(first_from(first)), limit.min(MAX_PAGE));
        let page = self.due_page(from, until.min(LATEST), limit).await?;
        Ok(page.into_iter().map(DurableTimer::new).collect())
    }

    /// Counts the timers that are due in each range between two successive times of `bounds`. A
    /// range includes its start and excludes its end. A count ends at `most`, or at 1000 if `most`
    /// is greater. The times must be in ascending order. A range whose end is before its start is
    /// empty.
    ///
    /// Paused timers are not counted, and a timer that is being delivered counts at the end of its
    /// lease. The store counts its index of due times without reading any timer. A file and
    /// PostgreSQL read as many entries as they count, and Redis reads only how many there are.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-count-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
    /// pollster::block_on(async {
    ///     for id in ["a", "b", "c"] {
    ///         timers.insert(id, "", now + 2 * minute, Options::new()).await?;
    ///     }
    ///     let bounds = [now, now + minute, now + 10 * minute];
    ///     assert_eq!(timers.count_due(&bounds, 1000).await?, [0, 3]);
    ///     assert_eq!(timers.count_due(&bounds, 2).await?, [0, 2]);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn count_due(
        &self,
        bounds: &[SystemTime],
        most: usize,
    ) -> Result<Vec<u64>, DurableError> {
        let most = most.min(MAX_PAGE);
        let time = |at: SystemTime| due(at).min(LATEST + 1);
        let ranges: Vec<(Millis, Millis)> = bounds
            .windows(2)
            .map(|pair| (time(pair[0]), time(pair[1]).max(time(pair[0]))))
            .collect();
        if most == 0 {
            return Ok(vec![0; ranges.len()]);
        }
        let mut counts = Vec::new();
        for some in ranges.chunks(COUNTED / most) {
            counts.extend(self.store.due_counts(some.to_vec(), most as u64).await?);
        }
        Ok(counts)
    }

    /// Returns up to `limit` timers in a state, in the order of their due times. To read all of
    /// them, pass the [`position`](DurableTimer::position) of the last timer of each page as
    /// `after` until a page is empty. A page has at most 1000 timers, and fewer if they are long.
    ///
    /// Paused timers have their own part of the index. For running and pausing timers, the store
    /// reads all timers that are due within two days, because no lease is longer than one day. For
    /// retrying timers, it reads all timers that are due before the latest retry that it has
    /// planned, so the cost depends on how long timers wait for their retries. (A store in a file
    /// or in Redis that a version without this state has created reads all timers.) For resting
    /// timers, it reads all timers up to the end of the page. It reads in bounded steps, and other
    /// calls continue between them. Timers that are moved or cannot be read are treated as in
    /// [`list_due`](Self::list_due).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// A program that resumes every paused timer:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers, TimerState};
    ///
    /// async fn resume_all(timers: &DurableTimers) -> Result<u32, DurableError> {
    ///     let (mut resumed, mut last) = (0, None);
    ///     loop {
    ///         let page = timers.list_state(TimerState::Paused, last, 100).await?;
    ///         for timer in &page {
    ///             resumed += u32::from(timers.resume_timer(&timer.id).await?);
    ///         }
    ///         match page.last() {
    ///             Some(timer) => last = Some(timer.position()),
    ///             None => return Ok(resumed),
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-by-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(async {
    /// #     for id in ["a", "b"] {
    /// #         let options = tourbillon_durable::Options::new();
    /// #         timers.insert(id, "", std::time::Duration::from_secs(3600), options).await?;
    /// #         timers.pause_timer(id).await?;
    /// #     }
    /// #     assert_eq!(resume_all(&timers).await?, 2);
    /// #     Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn list_state(
        &self,
        state: TimerState,
        after: Option<ListPosition>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let (mut from, limit) = (first_after(after), limit.min(MAX_PAGE));
        let until = match state {
            TimerState::Resting => LATEST,
            TimerState::Retrying => self.store.retries_until().await?,
            TimerState::Running | TimerState::Pausing | TimerState::Cancelling => {
                self.store.now().await? + LEASES
            }
            TimerState::Paused => {
                from.0 += PARKED;
                PARKED + LATEST
            }
        };
        let mut page = Vec::new();
        loop {
            let found = self.store.find(from, until, MAX_PAGE).await?;
            let timers = found.timers.into_iter().map(DurableTimer::new);
            page.extend(timers.filter(|timer| timer.state == state));
            page.truncate(limit);
            match found.next {
                Some(next) if page.is_empty() => from = next,
                // A page that is not empty may be short.
                _ => return Ok(page),
            }
        }
    }

    /// Returns timers from a position on, paused or not. The limit is at least 1.
    async fn due_page(
        &self,
        mut from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Vec<(String, Record)>, DurableError> {
        loop {
            let parked: Key = (from.0 + PARKED, Arc::clone(&from.1));
            let others = self.store.find(from, until, limit);
            let paused = self.store.find(parked, until + PARKED, limit);
            let (others, paused) = try_join(others, paused).await?;
            let further = paused.next.map(|(time, id)| (time - PARKED, id));
            // Keys beyond the end of one of the two pages come with the next page.
            let end = others.next.into_iter().chain(further).min();
            let mut page = others.timers;
            page.extend(paused.timers);
            page.sort_unstable_by(|(one, first), (other, second)| {
                (first.due, one).cmp(&(second.due, other))
            });
            if let Some((time, id)) = &end {
                page.retain(|(other, record)| (record.due, &**other) < (*time, &**id));
            }
            page.truncate(limit);
            match end {
                Some(end) if page.is_empty() => from = end,
                _ => return Ok(page),
            }
        }
    }
}

/// Returns the first key after a position, or the first of all.
fn first_after(position: Option<ListPosition>) -> Key {
    position.map_or(first_from(0), ListPosition::successor)
}
