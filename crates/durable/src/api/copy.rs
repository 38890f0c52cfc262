//! [`DurableTimers::copy_to`], which moves a store to another place.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::record::Record;
use crate::store::{Leasing, Letters, MAX_PAGE};
use std::sync::Arc;
use std::time::Duration;

/// How often running timers are read again.
const AGAIN: Duration = Duration::from_millis(500);

/// The progress of [`DurableTimers::copy_to`].
///
/// # Examples
///
/// ```
/// use tourbillon_durable::CopyProgress;
///
/// fn show(progress: &CopyProgress) {
///     println!("{} timers, {} dead letters", progress.timers, progress.dead_letters);
///     if progress.running > 0 {
///         println!("waiting for {} running timers", progress.running);
///     }
/// }
/// # let _ = show;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyProgress {
    /// The number of timers that were copied.
    pub timers: u64,
    /// The number of running timers that have yet to be copied.
    pub running: u64,
    /// The number of dead letters that were copied, or existed already.
    pub dead_letters: u64,
}

impl DurableTimers {
    /// Copies all timers and dead letters to another store: from a file to Redis, from Redis to a
    /// store with another number of partitions, or any other way. Options, rules, headers,
    /// attempts, errors, planned and due times, paused timers and timers that come
    /// [next](crate::Inserted::Next) are kept, and so is the order of dead letters. Their numbers
    /// change.
    ///
    /// **This store must be paused**, and the call pauses the other store. Afterwards, both have
    /// the same timers. [Resume](Self::resume) the other store, and abandon this one, or each timer
    /// is delivered twice. Timers that callers insert or change during the copy may be missing, so
    /// stop the callers first. Timers of the other store with the same id are replaced, and all
    /// others stay.
    ///
    /// **If a copy was interrupted, repeat it.** As long as neither store is resumed or changed in
    /// between, nothing is lost and nothing is doubled. The call begins from the start and writes
    /// each timer again.
    ///
    /// **The call waits for running timers**, until their attempts end or their leases run out. A
    /// timer whose lease has run out is taken over, so that the old attempt no longer counts, and
    /// is copied as running. In the other store that attempt has failed, and is retried.
    ///
    /// `progress` is called after each page of up to 1000 timers or letters. The records pass
    /// through this process, a page at a time. Afterwards, compare [`len`](Self::len) and
    /// [`dead_len`](Self::dead_len) of both stores.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Option`] if the other store is this store, with
    /// [`DurableError::NotPaused`] if this store is not paused, with [`DurableError::Corrupt`] if a
    /// record cannot be read, or if either store fails. In the last two cases the other store has a
    /// part of the timers, and remains paused.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let name = format!("tourbillon-copy-{}", std::process::id());
    /// # let folder = std::env::temp_dir();
    /// # let (file, new) = (folder.join(&name), folder.join(name + "-2"));
    /// let (timers, other) = (DurableTimers::open(&file)?, DurableTimers::open(&new)?);
    /// pollster::block_on(async {
    ///     timers.insert("order 7", "unpaid", Duration::from_secs(3600), Options::new()).await?;
    ///     timers.pause().await?;
    ///     let copied = timers.copy_to(&other, |progress| println!("{progress:?}")).await?;
    ///     assert_eq!(copied.timers, 1);
    ///     assert_eq!(other.get("order 7").await?, timers.get("order 7").await?);
    ///     other.resume().await?;
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop((timers, other));
    /// # std::fs::remove_file(&file)?;
    /// # std::fs::remove_file(&new)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn copy_to(
        &self,
        other: &DurableTimers,
        mut progress: impl FnMut(&CopyProgress) + Send,
    ) -> Result<CopyProgress, DurableError> {
        if Arc::ptr_eq(&self.store, &other.store) {
            return Err(DurableError::Option("a store cannot be copied to itself"));
        }
        if !self.is_paused().await? {
            return Err(DurableError::NotPaused);
        }
        other.pause().await?;
        let (mut copied, mut running) = (CopyProgress::default(), Vec::new());
        let mut last: Option<String> = None;
        loop {
            let page = self.store.list(last.as_deref(), MAX_PAGE).await?;
            let Some((id, _)) = page.last() else { break };
            last = Some(id.clone());
            let (rest, active): (Vec<_>, Vec<_>) =
                page.into_iter().partition(|(_, record)| record.fence.is_none());
            running.extend(active.into_iter().map(|(id, _)| id));
            copied.running = running.len() as u64;
            copied.timers += rest.len() as u64;
            other.store.copy_timers(rest).await?;
            progress(&copied);
        }
        self.copy_running(other, running, &mut copied, &mut progress).await?;
        let mut last = None;
        loop {
            let page = self.store.dead(Letters::After(last), MAX_PAGE).await?;
            let Some((number, _)) = page.last() else { break };
            last = Some(*number);
            copied.dead_letters += page.len() as u64;
            other.store.copy_letters(page.into_iter().map(|(_, dead)| dead).collect()).await?;
            progress(&copied);
        }
        Ok(copied)
    }

    /// Copies timers that were running, once they no longer are.
    async fn copy_running(
        &self,
        other: &DurableTimers,
        mut running: Vec<String>,
        copied: &mut CopyProgress,
        progress: &mut (impl FnMut(&CopyProgress) + Send),
    ) -> Result<(), DurableError> {
        while !running.is_empty() {
            let mut left = Vec::new();
            for id in std::mem::take(&mut running) {
                match self.settled(&id).await? {
                    Settled::Running => left.push(id),
                    Settled::Gone => {}
                    Settled::At(record) => {
                        other.store.copy_timers(vec![(id, *record)]).await?;
                        copied.timers += 1;
                    }
                }
            }
            running = left;
            copied.running = running.len() as u64;
            progress(copied);
            if !running.is_empty() {
                self.timer.sleep(AGAIN).await.map_err(DurableError::Timer)?;
            }
        }
        Ok(())
    }

    /// Returns the record of a timer that was running, if its attempt has ended or can no longer
    /// count.
    async fn settled(&self, id: &str) -> Result<Settled, DurableError> {
        let Some(record) = self.store.get(id).await? else { return Ok(Settled::Gone) };
        if record.fence.is_none() {
            return Ok(Settled::At(Box::new(record)));
        }
        match self.store.take_over(&(record.indexed(), Arc::from(id))).await? {
            Leasing::Taken(lease) => {
                // Its lease has expired, in the other store as well.
                let record = Record { due: lease.now, ..lease.record };
                Ok(Settled::At(Box::new(record)))
            }
            Leasing::Unreadable(error) => Err(error),
            Leasing::NotDue { .. }
            | Leasing::NotFound
            | Leasing::Locked { .. }
            | Leasing::Paused => Ok(Settled::Running),
        }
    }
}

/// A timer that was running.
enum Settled {
    Running,
    Gone,
    At(Box<Record>),
}
