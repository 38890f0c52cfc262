//! [`DurableTimers::check`]: the records of a store against its index of due times.

#![forbid(unsafe_code)]

use super::clock::{Millis, system};
use super::error::DurableError;
use super::key::{Key, first_from};
use super::timers::DurableTimers;
use std::time::SystemTime;

/// The most findings that a report names.
const MOST_NAMED: usize = 1000;

/// The result of [`DurableTimers::check`].
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
    /// The number of records that were read.
    pub timers: u64,
    /// The number of keys of the index that were read: one for each timer in a sound store at rest.
    pub keys: u64,
    /// The number of findings.
    pub found: u64,
    /// The first 1000 findings.
    pub findings: Vec<Finding>,
}

/// Damage that [`DurableTimers::check`] has found.
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
    /// The record of a timer is intact, but the store does not find it by its id or by its due
    /// time. The timer is not delivered until the store is repaired.
    Unindexed {
        /// The timer's id.
        id: String,
    },
    /// A key of the index leads to no record, or to one that is due at another time.
    Stray {
        /// The id in the key. If its bytes are damaged, those that are not UTF-8 are replaced.
        id: String,
        /// The due time in the key.
        due: SystemTime,
    },
    /// The record of a timer cannot be read, or belongs to another id.
    Unreadable {
        /// The id under which it lies. If its bytes are damaged, those that are not UTF-8 are
        /// replaced.
        id: String,
    },
}

impl Finding {
    pub(super) fn stray(due: Millis, id: &str) -> Self {
        Self::Stray { id: id.to_owned(), due: system(due) }
    }
}

/// A position in a store that is being checked: a part of it, and a key within that part after
/// which the check goes on. What a part is, and a key in it, is the store's choice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cursor {
    pub(super) part: u64,
    pub(super) after: Key,
}

impl Cursor {
    /// The beginning of a part.
    pub(super) fn part(part: u64) -> Self {
        Self { part, after: first_from(0) }
    }
}

/// What one step of a check has found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    /// How many records were read.
    pub(super) timers: u64,
    /// How many keys of the index were read.
    pub(super) keys: u64,
    pub(super) findings: Vec<Finding>,
    /// Where the check goes on; `None` at the end of the store.
    pub(super) next: Option<Cursor>,
}

impl CheckReport {
    /// Returns `true` if nothing is damaged.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.found == 0
    }

    fn add(&mut self, checked: Checked) {
        self.timers += checked.timers;
        self.keys += checked.keys;
        self.found += checked.findings.len() as u64;
        let room = MOST_NAMED - self.findings.len();
        self.findings.extend(checked.findings.into_iter().take(room));
    }
}

impl DurableTimers {
    /// Compares the records of all timers with the index of due times by which workers find them,
    /// in both directions, and reports what does not fit. Nothing is changed.
    ///
    /// Each record is read and looked up by its id and by its due time, and each key of the index
    /// is followed to its record: `n` timers cost some `3 n` lookups. The store is read in steps of
    /// up to 1000 timers, so that workers and callers go on in between. A timer that changes while
    /// the check runs is compared as it is at one moment, and may be counted twice or not at all.
    ///
    /// A disk that returns wrong bytes is the usual cause of a finding. Until a check, a worker
    /// reports ([`Unreadable`](super::Outcome::Unreadable)) the keys that lead to no record when
    /// they are due; a timer whose key is damaged in its due time may otherwise be late without a
    /// word.
    ///
    /// # Errors
    ///
    /// The store failed, or cannot be reached.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::DurableTimers;
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-check-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let report = pollster::block_on(timers.check())?;
    /// assert!(report.is_sound(), "{:?}", report.findings);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn check(&self) -> Result<CheckReport, DurableError> {
        let (mut report, mut at) = (CheckReport::default(), Some(Cursor::part(0)));
        while let Some(from) = at {
            let mut checked = self.store.check(from).await?;
            at = checked.next.take();
            report.add(checked);
        }
        Ok(report)
    }

    /// Checks the store as [`check`](Self::check) does, and if anything is found mends what can be
    /// mended. Returns what was found before; another check shows what is left.
    ///
    /// - The index is derived anew from the records that can be read: every such timer is delivered
    ///   again, and keys that lead to no record go.
    /// - A record that lies under a damaged id is put back under its own, which is still in the
    ///   index.
    /// - A record that cannot be read stays, and is reported as before.
    ///   [`remove_corrupt`](Self::remove_corrupt) removes it.
    ///
    /// In a file the repair is one transaction, done or not done as a whole. It reads and writes
    /// all records, needs as much space again in the file, and other changes wait for it. In Redis
    /// it takes as many steps as the check, between which others go on; records stay where they
    /// are, and workers of other processes find what was put back within a minute.
    ///
    /// # Errors
    ///
    /// As [`check`](Self::check); or there is no space. In a file nothing is changed then; in Redis
    /// it may be done in part, and can be done again.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::DurableTimers;
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-repair-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let found = pollster::block_on(timers.repair())?;
    /// assert!(found.is_sound(), "{:?}", found.findings);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn repair(&self) -> Result<CheckReport, DurableError> {
        let report = self.check().await?;
        if !report.is_sound() {
            self.store.repair().await?;
        }
        Ok(report)
    }
}
