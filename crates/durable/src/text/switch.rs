//! [`Switch`], which pauses and resumes.

#![forbid(unsafe_code)]

use crate::api::labels::BulkChange;
use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::label::Label;

/// Pauses or resumes a timer, the timers with a label, or a store.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::DurableTimers;
/// use tourbillon_durable::text::Switch;
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-switch-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// assert_eq!(pollster::block_on(Switch::Pause.store(&timers))?, "paused");
/// assert!(!pollster::block_on(Switch::Resume.timer(&timers, "order 7"))?); // there is none
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Begins no further attempts. Running attempts continue.
    Pause,
    /// Makes overdue timers due.
    Resume,
}

impl Switch {
    /// Pauses or resumes a timer. Returns `false` if there is no timer with this id.
    ///
    /// # Errors
    ///
    /// Fails as [`DurableTimers::pause_timer`] and [`DurableTimers::resume_timer`] do.
    pub async fn timer(self, timers: &DurableTimers, id: &str) -> Result<bool, DurableError> {
        match self {
            Self::Pause => timers.pause_timer(id).await,
            Self::Resume => timers.resume_timer(id).await,
        }
    }

    /// Pauses or resumes a page of the timers with a label.
    ///
    /// # Errors
    ///
    /// Fails as [`DurableTimers::pause_label`] and [`DurableTimers::resume_label`] do.
    pub async fn label(
        self,
        timers: &DurableTimers,
        label: &Label,
        after: Option<&str>,
        limit: usize,
    ) -> Result<BulkChange, DurableError> {
        match self {
            Self::Pause => timers.pause_label(label, after, limit).await,
            Self::Resume => timers.resume_label(label, after, limit).await,
        }
    }

    /// Returns what was done, `paused` or `resumed`.
    #[must_use]
    pub fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
        }
    }

    /// Pauses or resumes a store. Returns its new state, `paused` or `resumed`.
    ///
    /// # Errors
    ///
    /// Fails as [`DurableTimers::pause`] and [`DurableTimers::resume`] do.
    pub async fn store(self, timers: &DurableTimers) -> Result<&'static str, DurableError> {
        match self {
            Self::Pause => timers.pause().await?,
            Self::Resume => timers.resume().await?,
        }
        Ok(self.done())
    }
}
