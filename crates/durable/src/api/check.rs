//! [`DurableTimers::check`] and [`DurableTimers::repair`].

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::check::{CheckReport, Cursor, FoundLeases};

impl DurableTimers {
    /// Compares the records of all timers with the index of due times that workers use to find
    /// them, and with the index of labels, and reports mismatches in both directions. Nothing is
    /// changed.
    ///
    /// Each record is read and looked up by its id and by its due time, and each key of the index
    /// is followed to its record, so `n` timers cost about `3 n` lookups. The store is read in
    /// steps of up to 1000 timers, and workers and callers continue between them. A timer that
    /// changes during the check is compared in one consistent state, and may be counted twice or
    /// not at all. The counter of leases, on which [`stats`](Self::stats) depends, is compared with
    /// the records of the file or, in Redis, of each partition, unless a lease began or ended there
    /// during the check.
    ///
    /// The usual cause of a finding is a disk that returns wrong bytes. Without a check, workers
    /// report keys without a record ([`Unreadable`](crate::Outcome::Unreadable)) when the keys are
    /// due, but a timer with a damaged due time may be late without any report.
    ///
    /// # Errors
    ///
    /// Fails if the store failed or cannot be reached.
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
        let mut leases = None;
        while let Some(from) = at {
            let part = from.part;
            let mut checked = self.store.check(from).await?;
            let found = FoundLeases::add(&mut leases, part, &checked);
            checked.findings.extend(found.and_then(FoundLeases::finding));
            at = checked.next.take();
            report.add(checked);
        }
        Ok(report)
    }

    /// Checks the store as [`check`](Self::check) does, and repairs it if the check finds damage.
    /// Returns the findings from before the repair. Another check shows what remains.
    ///
    /// - The index is rebuilt from the records that can be read. Every such timer is delivered
    ///   again, and keys without a record are removed.
    /// - A record under a damaged id is moved back to its own id, which is still in the index.
    /// - The leases are counted again. In Redis, a partition is left out if leases begin or end in
    ///   it meanwhile. To include all partitions, [pause](Self::pause) the store first.
    /// - A record that cannot be read stays and is reported as before.
    ///   [`remove_corrupt`](Self::remove_corrupt) removes it.
    ///
    /// In a file, the repair is one transaction and takes effect completely or not at all. It reads
    /// and writes all records, needs as much additional space in the file, and blocks other
    /// changes. In Redis it takes as many steps as the check, and other operations continue between
    /// them. Records stay where they are, the timers of [`len`](Self::len) are counted again, and
    /// workers of other processes find restored timers within a minute.
    ///
    /// # Errors
    ///
    /// Fails like [`check`](Self::check), or if there is no space. A file is then unchanged. In
    /// Redis the repair may be incomplete, and can be repeated.
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
