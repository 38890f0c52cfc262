//! Timers by label, in the order of their ids, and changes of all of them.

#![forbid(unsafe_code)]

use crate::api::timer::DurableTimer;
use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::condition::Condition;
use crate::model::label::Label;
use crate::store::{Answer, Cancelled, Ids, MAX_PAGE};
use futures_util::TryFutureExt;
use futures_util::stream::{self, StreamExt};

/// The number of timers that are changed at a time.
const AT_ONCE: usize = 64;

/// The result of a change of the timers with a label.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::BulkChange;
///
/// let nothing = BulkChange::default();
/// assert_eq!((nothing.changed, nothing.last), (0, None));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BulkChange {
    /// The number of timers to which the change was applied.
    pub changed: u64,
    /// The number of timers that stay because they cannot be read.
    pub unreadable: u64,
    /// The id of the last timer of the page, or `None` if there was no timer.
    pub last: Option<String>,
}

impl DurableTimers {
    /// Returns up to `limit` timers with a label and an id greater than `after`, in the order of
    /// their ids, byte by byte. To read all of them, pass the last id of each page for the next
    /// page until a page is empty. A page has at most 1000 timers, and fewer if they are long.
    ///
    /// The store finds the timers by their label, so the cost depends on the page and, in Redis, on
    /// the number of partitions. If the label of a timer changes between two pages, the timer is on
    /// the pages that are read while it has the label. A timer that cannot be read is left out
    /// ([`check`](Self::check) finds it).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Label, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-labels-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// let shop = Label::new("shop")?;
    /// pollster::block_on(async {
    ///     for id in ["order 7", "order 8", "order 9"] {
    ///         let options = Options::new().label(shop.clone());
    ///         timers.insert(id, "unpaid", Duration::from_secs(60), options).await?;
    ///     }
    ///     let page = timers.list_label(&shop, None, 2).await?;
    ///     let rest = timers.list_label(&shop, Some(&page[1].id), 2).await?;
    ///     assert_eq!((page.len(), &*rest[0].id, rest.len()), (2, "order 9", 1));
    ///     assert_eq!(timers.label_len(&shop).await?, 3);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn list_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        self.labelled(label, Ids::After(after.map(str::to_owned)), limit).await
    }

    /// Returns up to `limit` timers with a label and an id smaller than `before`, the greatest id
    /// first. In all other respects it is like [`list_label`](Self::list_label).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn list_label_before(
        &self,
        label: &Label,
        before: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        self.labelled(label, Ids::Before(before.map(str::to_owned)), limit).await
    }

    async fn labelled(
        &self,
        label: &Label,
        mut ids: Ids,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        loop {
            let page =
                self.store.label_ids(label.clone(), ids.clone(), limit.min(MAX_PAGE)).await?;
            if page.is_empty() {
                return Ok(Vec::new());
            }
            let read = self.store.get_each(page).await?;
            let Some((last, _)) = read.last() else { return Ok(Vec::new()) };
            ids = ids.beyond(last.clone());
            // A timer may have ended or lost its label since its id was read.
            let timers = read.into_iter().filter_map(|(id, record)| {
                let record = record.filter(|record| record.settings.labels.contains(label))?;
                Some(DurableTimer::new((id, record)))
            });
            let timers: Vec<DurableTimer> = timers.collect();
            // Only the end of the list is an empty page.
            if !timers.is_empty() {
                return Ok(timers);
            }
        }
    }

    /// Returns the number of timers with a label, without dead letters. A file and PostgreSQL count
    /// the entries of the label in an index, a file in steps of 10,000, between which other calls
    /// continue. Redis keeps their number.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn label_len(&self, label: &Label) -> Result<u64, DurableError> {
        let (mut count, mut next) = self.store.label_len(label.clone(), None).await?;
        while let Some(after) = next {
            let (more, last) = self.store.label_len(label.clone(), Some(after)).await?;
            (count, next) = (count + more, last);
        }
        Ok(count)
    }

    /// Pauses up to `limit` timers with a label and an id greater than `after`, in the order of
    /// their ids, each like [`pause_timer`](Self::pause_timer). To pause all of them, pass the
    /// [last](BulkChange::last) id of each page until it is `None`. A page has at most 1000 timers.
    ///
    /// A timer that ends or loses the label before its turn is left alone. The call can be
    /// repeated, and a timer that was paused already counts as changed.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. A part of the page may have been changed. Repeat it with the same
    /// `after`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers, Label};
    ///
    /// /// Returns the number of timers that were paused.
    /// async fn pause_all(timers: &DurableTimers, label: &Label) -> Result<u64, DurableError> {
    ///     let (mut all, mut after) = (0, None::<String>);
    ///     loop {
    ///         let page = timers.pause_label(label, after.as_deref(), 1000).await?;
    ///         all += page.changed;
    ///         match page.last {
    ///             Some(last) => after = Some(last),
    ///             None => return Ok(all),
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-bulk-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # let label = Label::new("shop")?;
    /// # let options = tourbillon_durable::Options::new().label(label.clone());
    /// # let hour = std::time::Duration::from_secs(3600);
    /// # pollster::block_on(timers.insert("order 7", "", hour, options))?;
    /// # assert_eq!(pollster::block_on(pause_all(&timers, &label))?, 1);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pause_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BulkChange, DurableError> {
        let pause = |id: &str| self.store.pause_timer(id, true, Some(label.clone()));
        self.change_label(label, after, limit, pause).await
    }

    /// Resumes timers with a label, as [`pause_label`](Self::pause_label) pauses them, each like
    /// [`resume_timer`](Self::resume_timer).
    ///
    /// # Errors
    ///
    /// Fails like [`pause_label`](Self::pause_label).
    pub async fn resume_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BulkChange, DurableError> {
        let resume = |id: &str| self.store.pause_timer(id, false, Some(label.clone()));
        self.change_label(label, after, limit, resume).await
    }

    /// Cancels timers with a label, as [`pause_label`](Self::pause_label) pauses them, each like
    /// [`cancel`](Self::cancel). Running attempts continue, and each is the last one of its timer.
    ///
    /// # Errors
    ///
    /// Fails like [`pause_label`](Self::pause_label).
    pub async fn cancel_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BulkChange, DurableError> {
        let cancel = |id: &str| -> Answer<bool> {
            let cancelled = self.store.cancel(id, Some(Condition::Label(label.clone())));
            Box::pin(cancelled.map_ok(|cancelled| cancelled != Cancelled::NotFound))
        };
        self.change_label(label, after, limit, cancel).await
    }

    /// Changes a page of the timers with a label, each in a step that checks the label.
    async fn change_label(
        &self,
        label: &Label,
        after: Option<&str>,
        limit: usize,
        change: impl Fn(&str) -> Answer<bool>,
    ) -> Result<BulkChange, DurableError> {
        let after = Ids::After(after.map(str::to_owned));
        let page = self.store.label_ids(label.clone(), after, limit.min(MAX_PAGE)).await?;
        let mut done = BulkChange { last: page.last().cloned(), ..BulkChange::default() };
        let each = page.into_iter().map(|id| change(&id));
        let mut each = stream::iter(each).buffered(AT_ONCE);
        while let Some(changed) = each.next().await {
            match changed {
                Ok(changed) => done.changed += u64::from(changed),
                // The timer has ended or lost the label.
                Err(DurableError::Changed) => {}
                Err(DurableError::Corrupt { .. }) => done.unreadable += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }
}
