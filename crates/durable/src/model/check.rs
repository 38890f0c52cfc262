//! The report of [`DurableTimers::check`](crate::DurableTimers::check), which compares the records
//! of a store with its index of due times.

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, system};
use crate::model::key::{Key, first_from};
use std::time::SystemTime;

/// The maximum number of findings in a report.
const MAX_NAMED: usize = 1000;

/// The result of [`DurableTimers::check`](crate::DurableTimers::check).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-report-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     timers.insert("order 7", "unpaid", Duration::from_secs(60), Options::new()).await?;
///     let report = timers.check().await?;
///     assert!(report.is_sound());
///     assert_eq!(report.timers, 1);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The number of records read.
    pub timers: u64,
    /// The number of index keys read, which is one per timer in an intact store at rest.
    pub keys: u64,
    /// The number of findings.
    pub found: u64,
    /// The first 1000 findings.
    pub findings: Vec<Finding>,
}

/// Damage that [`DurableTimers::check`](crate::DurableTimers::check) has found.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::{DurableError, DurableTimers, Finding};
///
/// /// Mends what can be mended and removes the rest.
/// async fn mend(timers: &DurableTimers) -> Result<(), DurableError> {
///     timers.repair().await?;
///     for finding in timers.check().await?.findings {
///         eprintln!("not mended: {finding:?}");
///         if let Finding::Unreadable { id } = finding {
///             timers.remove_corrupt(&id).await?;
///         }
///     }
///     Ok(())
/// }
/// # let file = std::env::temp_dir().join(format!("tourbillon-finding-{}", std::process::id()));
/// # let timers = DurableTimers::open(&file)?;
/// # pollster::block_on(mend(&timers))?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// The record of a timer is intact, but the store cannot find it by its id, by its due time or
    /// by a label. It may not be delivered until the store is repaired.
    Unindexed {
        /// The timer's id.
        id: String,
    },
    /// A key of the index has no record, or its record is due at another time.
    Stray {
        /// The id in the key. Damaged bytes that are not UTF-8 are replaced.
        id: String,
        /// The due time in the key.
        due: SystemTime,
    },
    /// A timer is listed by a label that it does not have, or there is no such timer.
    StrayLabel {
        /// The id in the list. Damaged bytes that are not UTF-8 are replaced.
        id: String,
        /// The label.
        label: String,
    },
    /// The record of a timer cannot be read, or belongs to another id.
    Unreadable {
        /// The id that the record is stored under. Damaged bytes that are not UTF-8 are replaced.
        id: String,
    },
    /// The counter of leases of a file, or of a partition in Redis, differs from the number of
    /// leased timers. Only [`DurableTimers::stats`](crate::DurableTimers::stats) depends on it.
    Leases {
        /// The value of the counter, or 0 if it is negative.
        counted: u64,
        /// The number of leased timers.
        found: u64,
    },
}

impl Finding {
    pub(crate) fn stray(due: Millis, id: &str) -> Self {
        Self::Stray { id: id.to_owned(), due: system(due) }
    }
}

/// A position in a store that is being checked. It names a part of the store and a key in that
/// part. The check continues after this key. Each store defines its parts and keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cursor {
    pub(crate) part: u64,
    pub(crate) after: Key,
}

impl Cursor {
    /// Returns the beginning of a part.
    pub(crate) fn part(part: u64) -> Self {
        Self { part, after: first_from(0) }
    }
}

/// The findings of one step of a check.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    /// The number of records read.
    pub(crate) timers: u64,
    /// The number of index keys read.
    pub(crate) keys: u64,
    /// The number of records with a lease.
    pub(crate) leased: u64,
    /// The number of leases that this part of the store has counted, if the part has records.
    pub(crate) counter: Option<LeaseCounter>,
    pub(crate) findings: Vec<Finding>,
    /// The position where the check continues, or `None` at the end of the store.
    pub(crate) next: Option<Cursor>,
}

/// The number of leases that a part of a store has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseCounter {
    /// Negative if leases have ended that were not counted.
    pub(crate) counted: i64,
    /// The last fencing token of the part. Each lease has a greater one than the lease before, so
    /// two equal counters enclose no begin and no end of a lease.
    pub(crate) fence: u64,
}

/// The leases that the steps of a check have found in a part of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundLeases {
    part: u64,
    /// The counter at the first step.
    pub(crate) counter: LeaseCounter,
    pub(crate) found: u64,
    /// Set if the counter has changed since, so that the two numbers cannot be compared.
    changed: bool,
}

impl FoundLeases {
    /// Adds a step in a part to the sum of its steps before. Returns the sum at the end of the
    /// part, unless leases began or ended meanwhile.
    pub(crate) fn add(sum: &mut Option<Self>, part: u64, checked: &Checked) -> Option<Self> {
        let counter = checked.counter?;
        let first = || Self { part, counter, found: 0, changed: false };
        let mut leases = sum.take().filter(|sum| sum.part == part).unwrap_or_else(first);
        leases.found += checked.leased;
        leases.changed |= leases.counter != counter;
        if checked.next.as_ref().is_some_and(|next| next.part == part) {
            *sum = Some(leases);
            return None;
        }
        (!leases.changed).then_some(leases)
    }

    /// Returns the finding if the counter is wrong.
    pub(crate) fn finding(self) -> Option<Finding> {
        let Self { counter: LeaseCounter { counted, .. }, found, .. } = self;
        let differs = u64::try_from(counted) != Ok(found);
        differs.then_some(Finding::Leases { counted: counted.max(0).unsigned_abs(), found })
    }
}

impl CheckReport {
    /// Returns `true` if nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }

    pub(crate) fn add(&mut self, checked: Checked) {
        self.timers += checked.timers;
        self.keys += checked.keys;
        self.found += checked.findings.len() as u64;
        let room = MAX_NAMED - self.findings.len();
        self.findings.extend(checked.findings.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(next: u64, leased: u64, counted: i64, fence: u64) -> Checked {
        let counter = Some(LeaseCounter { counted, fence });
        Checked { leased, counter, next: Some(Cursor::part(next)), ..Checked::default() }
    }

    #[test]
    fn leases_are_compared_at_the_end_of_a_part() {
        let mut sum = None;
        let mut add =
            |part, checked| FoundLeases::add(&mut sum, part, &checked).map(|found| found.finding());
        assert_eq!(add(0, step(0, 2, 3, 9)), None);
        assert_eq!(add(0, step(1, 1, 3, 9)), Some(None));
        // The keys of the index have no counter.
        assert_eq!(add(1, Checked { next: Some(Cursor::part(2)), ..Checked::default() }), None);
        assert_eq!(add(2, step(2, 2, 3, 9)), None);
        let finding = Finding::Leases { counted: 3, found: 2 };
        assert_eq!(add(2, step(3, 0, 3, 9)), Some(Some(finding)));
        // A lease has begun, and another has ended.
        assert_eq!(add(4, step(4, 2, 3, 9)), None);
        assert_eq!(add(4, step(4, 0, 3, 10)), None);
        assert_eq!(add(4, step(5, 0, 3, 10)), None);
        assert_eq!(add(6, step(7, 1, 1, 9)), Some(None));
        // One has ended that was not counted.
        assert_eq!(add(8, step(8, 1, -1, 9)), None);
        assert_eq!(add(8, step(9, 0, -2, 9)), None);
        let finding = Finding::Leases { counted: 0, found: 0 };
        assert_eq!(add(10, step(11, 0, -2, 9)), Some(Some(finding)));
    }
}
