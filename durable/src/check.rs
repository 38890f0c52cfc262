//! The report of [`DurableTimers::check`](super::DurableTimers::check), which compares the records
//! of a store with its index of due times.

#![forbid(unsafe_code)]

use super::clock::{Millis, system};
use super::key::{Key, first_from};
use std::time::SystemTime;

/// The maximum number of findings in a report.
const MOST_NAMED: usize = 1000;

/// The result of [`DurableTimers::check`](super::DurableTimers::check).
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

/// Damage that [`DurableTimers::check`](super::DurableTimers::check) has found.
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
    /// The record of a timer is intact, but the store cannot find it by its id or by its due time.
    /// The timer is not delivered until the store is repaired.
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
    /// The record of a timer cannot be read, or belongs to another id.
    Unreadable {
        /// The id under which the record is stored. Damaged bytes that are not UTF-8 are replaced.
        id: String,
    },
}

impl Finding {
    pub(super) fn stray(due: Millis, id: &str) -> Self {
        Self::Stray { id: id.to_owned(), due: system(due) }
    }
}

/// A position in a store that is being checked. It names a part of the store, and the key in that
/// part after which the check continues. Each store defines its parts and keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pub(super) part: u64,
    pub(super) after: Key,
}

impl Cursor {
    /// Returns the beginning of a part.
    pub(super) fn part(part: u64) -> Self {
        Self { part, after: first_from(0) }
    }
}

/// The findings of one step of a check.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// The number of records read.
    pub(super) timers: u64,
    /// The number of index keys read.
    pub(super) keys: u64,
    pub(super) findings: Vec<Finding>,
    /// The position at which the check continues, or `None` at the end of the store.
    pub(super) next: Option<Cursor>,
}

impl CheckReport {
    /// Returns `true` if nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }

    pub(super) fn add(&mut self, checked: Checked) {
        self.timers += checked.timers;
        self.keys += checked.keys;
        self.found += checked.findings.len() as u64;
        let room = MOST_NAMED - self.findings.len();
        self.findings.extend(checked.findings.into_iter().take(room));
    }
}
