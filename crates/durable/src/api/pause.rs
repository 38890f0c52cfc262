//! Pausing and resuming timers, and whole stores.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::error::DurableError;

impl DurableTimers {
    /// Pauses a timer, so that no attempt begins until it is resumed. Returns `true` if there is a
    /// timer with this id, even if it was paused already.
    ///
    /// A paused timer keeps its due time, and a delivery that was [ordered](Self::run_now) is taken
    /// back unless an attempt has counted. The timer can be reset,
    /// [updated](crate::Existing::Update), cancelled, and [delivered once](Self::run_now), and a
    /// timer that [replaces](crate::Existing::Replace) it is not paused. If an attempt is running,
    /// it continues, and the timer is paused once it rests, that is before its next attempt, its
    /// next repetition, or the timer that was inserted as [`Next`](crate::Inserted::Next).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options, TimerState};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-pause-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     let hourly = Options::new().every(Duration::from_secs(3600));
    ///     timers.insert("report", "", Duration::from_secs(60), hourly).await?;
    ///     assert!(timers.pause_timer("report").await?);
    ///     let paused = timers.get("report").await?;
    ///     assert_eq!(paused.map(|timer| timer.state), Some(TimerState::Paused));
    ///     assert!(timers.resume_timer("report").await?);
    ///     assert!(!timers.pause_timer("another").await?);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pause_timer(&self, id: &str) -> Result<bool, DurableError> {
        self.store.pause_timer(id, true, None).await
    }

    /// Resumes a timer. Returns `true` if there is a timer with this id, even if it was not paused.
    ///
    /// If the timer is overdue, it is delivered at once. The misfire option decides about a
    /// repetition whose occurrences have passed meanwhile ([`Misfire`](crate::Misfire)).
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn resume_timer(&self, id: &str) -> Result<bool, DurableError> {
        self.store.pause_timer(id, false, None).await
    }

    /// Pauses the store. Once the future completes, no attempt of any timer begins, by any worker
    /// of any process, until the store is [resumed](Self::resume).
    ///
    /// Running attempts continue, and their results count. Timers can be inserted, changed and
    /// cancelled as usual. Workers continue to run, and ask the store about once a second. The
    /// pause is part of the store and survives all processes. Timers that were
    /// [paused](Self::pause_timer) one by one are not affected.
    ///
    /// In Redis this takes one request for each partition.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. In Redis some partitions may be paused then, while
    /// [`is_paused`](Self::is_paused) still returns `false`. Repeat the call, or resume the store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::DurableTimers;
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-paused-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     timers.pause().await?;
    ///     assert!(timers.is_paused().await?); // for the maintenance of what the handlers use
    ///     timers.resume().await?;
    ///     assert!(!timers.is_paused().await?);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn pause(&self) -> Result<(), DurableError> {
        self.store.pause(true).await
    }

    /// Resumes the store. Overdue timers are delivered oldest first, and the misfire option decides
    /// about repetitions ([`Misfire`](crate::Misfire)). Workers notice it at once, or within a
    /// second if a notice is lost.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. In Redis some partitions may still be paused then. Repeat the
    /// call.
    pub async fn resume(&self) -> Result<(), DurableError> {
        self.store.pause(false).await
    }

    /// Returns `true` if the store is paused.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn is_paused(&self) -> Result<bool, DurableError> {
        self.store.is_paused().await
    }
}
