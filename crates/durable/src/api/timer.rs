//! [`DurableTimer`], a timer as callers read it, with the methods that read timers.

#![forbid(unsafe_code)]

use crate::api::timers::DurableTimers;
use crate::error::DurableError;
use crate::model::clock::system;
use crate::model::options::Options;
use crate::model::record::Record;
use crate::store::MAX_PAGE;
use std::time::SystemTime;

/// A timer in the store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options, TimerState};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-timer-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let day = Duration::from_secs(86_400);
///     timers.insert("order 7", "unpaid", day, Options::new()).await?;
///     for timer in timers.list(None, 100).await? {
///         println!("{}: due {:?}, {} attempts", timer.id, timer.due, timer.attempts);
///         assert_eq!(timer.payload, b"unpaid");
///         assert_eq!(timer.state, TimerState::Resting);
///         assert_eq!((timer.options.get_attempts(), timer.error.as_str()), (8, ""));
///         assert_eq!(timer.due, timer.planned); // later, once an attempt has failed
///     }
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DurableTimer {
    /// The id.
    pub id: String,
    /// The payload that was passed to [`insert`](DurableTimers::insert).
    pub payload: Vec<u8>,
    /// The time of the delivery. Together with the id it identifies the delivery.
    pub planned: SystemTime,
    /// When the next attempt begins or, while an attempt is running, when its lease ends.
    pub due: SystemTime,
    /// The number of attempts that have begun.
    pub attempts: u32,
    /// The state.
    pub state: TimerState,
    /// The options that were passed to [`insert`](DurableTimers::insert). The policy for
    /// [existing](crate::Options::existing) timers is not kept, so it is the default. The rule is
    /// missing if the timer was cancelled while an attempt was running.
    pub options: Options,
    /// The error of the last failed attempt, or of the last delivery that was given back with one,
    /// or an empty string.
    pub error: String,
    /// The planned time of the delivery that follows this one, because it was inserted while this
    /// one was running ([`Inserted::Next`](crate::Inserted::Next)), or because the timer repeats
    /// and this one was [asked for](DurableTimers::run_now) in addition to it.
    pub next: Option<SystemTime>,
    /// The options of that delivery.
    next_options: Option<Options>,
}

/// The state of a timer in the store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options, TimerState};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-state-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let state = || async { timers.get("order 7").await.map(|found| found.map(|it| it.state)) };
/// pollster::block_on(async {
///     let hour = Duration::from_secs(3600);
///     timers.insert("order 7", "unpaid", hour, Options::new()).await?;
///     assert_eq!(state().await?, Some(TimerState::Resting));
///     timers.pause_timer("order 7").await?;
///     assert_eq!(state().await?, Some(TimerState::Paused));
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerState {
    /// The timer waits for its due time. This is also the state of a paused timer that was
    /// [asked to run](DurableTimers::run_now), until its attempt begins.
    Resting,
    /// An attempt has begun and not succeeded, and the timer waits for its next attempt. An attempt
    /// that does not count, such as one that was given back, leaves the state as it was.
    Retrying,
    /// An attempt is running, or was running when its worker died.
    Running,
    /// Like [`Running`](Self::Running), but the timer is paused afterwards.
    Pausing,
    /// Like [`Running`](Self::Running), but the timer was
    /// [cancelled](crate::Cancelled::Running), so this attempt is the last one.
    Cancelling,
    /// The timer rests, and no attempt begins until it is
    /// [resumed](DurableTimers::resume_timer).
    Paused,
}

impl DurableTimer {
    pub(crate) fn new((id, record): (String, Record)) -> Self {
        let state = TimerState::of(&record);
        let plan = record.plan();
        let Record { due, planned, attempt, settings, error, payload, next, .. } = record;
        let (planned, due, options) = (system(planned), system(due), Options::of(settings));
        let next = next.map(|next| (system(next.planned), Options::of(next.settings)));
        let (next, next_options) = next.unzip();
        let next = next.or(plan.map(system));
        Self {
            id,
            payload,
            planned,
            due,
            attempts: attempt,
            state,
            options,
            error,
            next,
            next_options,
        }
    }

    /// Returns the options of the last insert, or `None` if the timer was cancelled and its last
    /// attempt is running. They differ from [`options`](Self::options) if another delivery comes
    /// [next](Self::next).
    ///
    /// [`Options::only_over`] and [`cancel_only`](DurableTimers::cancel_only) compare their
    /// headers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-last-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     let options = Options::new().header("version", "1");
    ///     timers.insert("order 7", "tea", Duration::from_secs(60), options.clone()).await?;
    ///     let found = timers.get("order 7").await?;
    ///     assert_eq!(found.as_ref().and_then(|timer| timer.last_insert()), Some(&options));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn last_insert(&self) -> Option<&Options> {
        let current = (self.state != TimerState::Cancelling).then_some(&self.options);
        self.next_options.as_ref().or(current)
    }

    /// Returns `true` if an attempt is running, or was running when its worker died.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state, TimerState::Running | TimerState::Pausing | TimerState::Cancelling)
    }
}

impl TimerState {
    fn of(record: &Record) -> Self {
        match (record.fence, record.paused) {
            _ if record.cancelled => Self::Cancelling,
            _ if record.is_parked() => Self::Paused,
            (None, _) if record.attempt > 0 => Self::Retrying,
            (None, _) => Self::Resting,
            (Some(_), false) => Self::Running,
            (Some(_), true) => Self::Pausing,
        }
    }
}

impl DurableTimers {
    /// Returns the timer with this id.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn get(&self, id: &str) -> Result<Option<DurableTimer>, DurableError> {
        let found = self.store.get(id).await?;
        Ok(found.map(|record| DurableTimer::new((id.to_owned(), record))))
    }

    /// Returns up to `limit` timers after the id `after`. To read all timers, pass the last id of
    /// each page for the next page until a page is empty. A page has at most 1000 timers, and fewer
    /// if they are long. The order is stable. In a file it is the order of the ids, in Redis
    /// another order.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if a timer cannot be read. The error then names the timer, and
    /// the list can continue after it.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        let list = self.store.list(after, limit.min(MAX_PAGE)).await?;
        Ok(list.into_iter().map(DurableTimer::new).collect())
    }

    /// Returns the number of timers, without dead letters.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn len(&self) -> Result<u64, DurableError> {
        Ok(self.store.len().await?.0)
    }

    /// Returns `true` if there are no timers.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn is_empty(&self) -> Result<bool, DurableError> {
        Ok(self.len().await? == 0)
    }
}
