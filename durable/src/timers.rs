//! [`DurableTimers`]: what callers use.

#![forbid(unsafe_code)]

use super::clock::{due, millis_up, system};
use super::error::{DurableError, LONGEST_ID, LONGEST_PAYLOAD};
use super::feed::Shared;
use super::json;
use super::options::{Options, When};
use super::record::{Dead, DeadReason, Record};
use super::store::{AnyStore, Due, Insert, Inserted, Store};
use serde::Serialize;
use std::sync::Arc;
use std::time::SystemTime;
use tourbillon::Refused;
use tourbillon::future::Timer;

/// The most timers that a page of a list has: others wait for the store meanwhile.
const LONGEST_PAGE: usize = 1000;

/// Timers of minutes to months that survive the process, each with an id and a payload.
///
/// They rest in a store; a [worker](Self::run) delivers them, **at least once, never early by the
/// store's clock, and acknowledged once for each id and planned time**. When the future of an operation
/// is ready, what it did is durable: nothing that was acknowledged is lost when the process is
/// killed. Any runtime will do, or none.
///
/// Clones share the store.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Existing, Options, Inserted};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-timers-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let (day, options) = (Duration::from_secs(86_400), Options::new());
///     timers.insert("trial of 7", "remind", day, options.clone()).await?;
///     assert!(timers.reset("trial of 7", day * 30).await?);
///
///     let keep = options.existing(Existing::Keep);
///     let second = timers.insert("trial of 7", "again", day, keep).await?;
///     assert_eq!(second, Inserted::Kept);
///
///     assert!(timers.cancel("trial of 7").await?);
///     assert_eq!(timers.get("trial of 7").await?, None);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DurableTimers {
    pub(super) store: Arc<dyn Store>,
    pub(super) timer: Timer,
    pub(super) feed: Shared,
}

/// A timer as it is kept.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-timer-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let day = Duration::from_secs(86_400);
///     timers.insert("order 7", "unpaid", day, Options::new()).await?;
///     for timer in timers.list(None, 100).await? {
///         println!("{}: due {:?}, {} attempts", timer.id, timer.due, timer.attempts);
///         assert_eq!(timer.payload, b"unpaid");
///         assert!(!timer.running && timer.error.is_empty());
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
    /// Its id.
    pub id: String,
    /// The payload with which the timer was scheduled.
    pub payload: Vec<u8>,
    /// When it is to be delivered; with its id the name of the delivery.
    pub planned: SystemTime,
    /// When the next attempt begins; or, if one is running, when its lease ends.
    pub due: SystemTime,
    /// How many attempts have begun.
    pub attempts: u32,
    /// Set if an attempt is running, or was when its worker died.
    pub running: bool,
    /// Why the last attempt failed; empty if none has.
    pub error: String,
    /// The due time of the delivery that was scheduled while this one ran
    /// ([`Inserted::Next`]).
    pub next: Option<SystemTime>,
}

/// A timer that is not tried any more.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-letter-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let worker = timers.worker().until(end); // `end` is ready when the program is to end
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// pollster::block_on(async {
///     timers.insert("order 7", "unpaid", Duration::ZERO, Options::new().attempts(1)).await?;
///     worker.run(|_| async { Err("there is no such customer") }).await?;
///
///     let letters = timers.dead_letters(None, 100).await?;
///     assert_eq!((letters[0].id.as_str(), letters[0].attempts), ("order 7", 1));
///     assert_eq!(letters[0].error, "there is no such customer");
///     assert!(timers.redrive(letters[0].number).await?); // once the cause is mended
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number, by which it is [driven again](DurableTimers::redrive).
    pub number: u64,
    /// The timer's id.
    pub id: String,
    /// The payload with which the timer was scheduled.
    pub payload: Vec<u8>,
    /// When it was to be delivered.
    pub planned: SystemTime,
    /// When it was given up.
    pub died: SystemTime,
    /// How many attempts were counted.
    pub attempts: u32,
    /// Why it was given up.
    pub reason: DeadReason,
    /// Why the last attempt failed; empty if none has.
    pub error: String,
}

impl DurableTimer {
    fn new((id, record): (String, Record)) -> Self {
        let Record { fence, due, planned, attempt, error, payload, next, .. } = record;
        let (planned, due, running) = (system(planned), system(due), fence.is_some());
        let next = next.map(|next| system(next.planned));
        Self { id, payload, planned, due, attempts: attempt, running, error, next }
    }
}

impl DeadLetter {
    fn new((number, dead): (u64, Dead)) -> Self {
        let Dead { id, died, reason, record } = dead;
        let Record { planned, attempt, error, payload, .. } = record;
        let (planned, died) = (system(planned), system(died));
        Self { number, id, payload, planned, died, attempts: attempt, reason, error }
    }
}

impl DurableTimers {
    /// Timers in that store. `timer` wakes the workers.
    #[must_use]
    pub fn new(store: impl Into<AnyStore>, timer: &Timer) -> Self {
        Self { store: store.into().0, timer: timer.clone(), feed: Shared::default() }
    }

    /// Arms a timer; returns when it is durable.
    ///
    /// # Errors
    ///
    /// The id or the payload is too long, the time beyond the year 9999, an option out of range;
    /// the id exists and [was to be refused](super::Existing::Refuse); or the store failed. Nothing
    /// is scheduled, and the payload comes back. (After [`Io`](DurableError::Io) and
    /// [`Unreachable`](DurableError::Unreachable) it may have been scheduled all the same: schedule
    /// it again and [keep](super::Existing::Keep) what is there.)
    pub async fn insert(
        &self,
        id: &str,
        payload: impl Into<Vec<u8>>,
        when: impl Into<When>,
        options: Options,
    ) -> Result<Inserted, Refused<DurableError, Vec<u8>>> {
        let payload = Arc::new(payload.into());
        let scheduled = self.try_insert(id, &payload, when.into(), options).await;
        scheduled.map_err(|reason| {
            let value = Arc::try_unwrap(payload).unwrap_or_else(|shared| shared.to_vec());
            Refused { reason, value }
        })
    }

    /// As [`insert`](Self::insert), with a value that serde writes. It is written as JSON: a
    /// payload that rests for months is then read by the next version of the program too, whose
    /// fields may have grown.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert); or the value cannot be written.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-json-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     let order = vec![("tea", 2)];
    ///     timers.insert_json("order", &order, Duration::from_secs(60), Options::new()).await?;
    ///     let kept = timers.get("order").await?;
    ///     assert_eq!(kept.map(|timer| timer.payload), Some(br#"[["tea",2]]"#.to_vec()));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn insert_json<T: Serialize + ?Sized>(
        &self,
        id: &str,
        value: &T,
        when: impl Into<When>,
        options: Options,
    ) -> Result<Inserted, DurableError> {
        Ok(self.insert(id, json::write(value)?, when, options).await?)
    }

    async fn try_insert(
        &self,
        id: &str,
        payload: &Arc<Vec<u8>>,
        when: When,
        options: Options,
    ) -> Result<Inserted, DurableError> {
        check_id(id)?;
        if payload.len() > LONGEST_PAYLOAD {
            let (length, most) = (payload.len(), LONGEST_PAYLOAD);
            return Err(DurableError::PayloadLength { length, most });
        }
        // Only a rule asks what time it is.
        let now = match options.settings.rule {
            Some(_) => self.store.now().await?,
            None => 0,
        };
        options.check(now)?;
        let due = match when {
            When::ByRule => match options.settings.next(now)? {
                Some(first) => Due::At(first),
                None => return Err(DurableError::Rule("there is none".to_owned())),
            },
            when => plain(when),
        };
        let (id, payload) = (id.to_owned(), Arc::clone(payload));
        let Options { existing, settings } = options;
        self.store.insert(Insert { id, payload, due, existing, settings }).await
    }

    /// Cancels a timer: `true` if and only if there was one and it will not be delivered (again).
    ///
    /// `false` if there is none; or an attempt is running, or was when its worker died: that
    /// delivery goes on, with its retries, but a repetition ends with it, and what was scheduled to
    /// come [next](Inserted::Next) does not.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn cancel(&self, id: &str) -> Result<bool, DurableError> {
        self.store.cancel(id).await
    }

    /// Moves a timer to another time: `true` if there was one that rested. It is delivered at its
    /// new time, with all its attempts, and not at the old one. (Of a repetition, that is the next
    /// delivery.)
    ///
    /// `false` if there is none, or an attempt is running, or was when its worker died.
    ///
    /// # Errors
    ///
    /// The time is beyond the year 9999, or `ByRule`; or the store failed. The timer is as it was.
    pub async fn reset(&self, id: &str, when: impl Into<When>) -> Result<bool, DurableError> {
        match when.into() {
            When::ByRule => Err(DurableError::Option("the time; `At` or `After` is allowed")),
            when => self.store.reset(id, plain(when)).await,
        }
    }

    /// The timer of that id.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn get(&self, id: &str) -> Result<Option<DurableTimer>, DurableError> {
        let found = self.store.get(id).await?;
        Ok(found.map(|record| DurableTimer::new((id.to_owned(), record))))
    }

    /// Up to `limit` timers, those after `after`: give the last id of a page for the next one,
    /// until one is empty. A page has 1000 at most, and fewer if they are long. Their order is the
    /// store's and does not change: in a file that of the ids, in Redis another.
    ///
    /// # Errors
    ///
    /// The store failed; or one of the timers cannot be read: the error names it, and the list goes
    /// on after it.
    pub async fn list(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<DurableTimer>, DurableError> {
        let list = self.store.list(after, limit.min(LONGEST_PAGE)).await?;
        Ok(list.into_iter().map(DurableTimer::new).collect())
    }

    /// How many timers there are, dead letters not counted.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn len(&self) -> Result<u64, DurableError> {
        Ok(self.store.len().await?.0)
    }

    /// Returns `true` if there is no timer.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn is_empty(&self) -> Result<bool, DurableError> {
        Ok(self.len().await? == 0)
    }

    /// How many dead letters there are.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub async fn dead_len(&self) -> Result<u64, DurableError> {
        Ok(self.store.len().await?.1)
    }

    /// Up to `limit` dead letters, oldest first, those whose numbers come after `after`: give the
    /// last number of a page for the next one, until one is empty. A page has 1000 at most, and
    /// fewer if they are long.
    ///
    /// # Errors
    ///
    /// The store failed; or one of the letters cannot be read: the error names it, and the list
    /// goes on after it.
    ///
    /// # Examples
    ///
    /// All of them, page by page, driven again:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn redrive_all(timers: &DurableTimers) -> Result<(), DurableError> {
    ///     let mut last = None;
    ///     loop {
    ///         let page = timers.dead_letters(last, 100).await?;
    ///         let Some(letter) = page.last() else { return Ok(()) };
    ///         last = Some(letter.number);
    ///         for letter in page {
    ///             match timers.redrive(letter.number).await {
    ///                 Ok(_) | Err(DurableError::Exists) => {}
    ///                 Err(error) => return Err(error),
    ///             }
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-dead-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(redrive_all(&timers))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letters(
        &self,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, DurableError> {
        let list = self.store.dead(after, limit.min(LONGEST_PAGE)).await?;
        Ok(list.into_iter().map(DeadLetter::new).collect())
    }

    /// Drives a dead letter again: it is due at once, under its old id and planned time, with all
    /// its attempts and no time to live. `false` if there is none of that number.
    ///
    /// # Errors
    ///
    /// [`DurableError::Exists`]: there is a timer of its id, such as its own next repetition. The
    /// letter stays; schedule its [payload](Self::dead_letter) under another id and
    /// [delete](Self::delete_dead_letter) it. Or the store failed.
    pub async fn redrive(&self, number: u64) -> Result<bool, DurableError> {
        self.store.redrive(number).await
    }

    /// The dead letter of that number.
    ///
    /// # Errors
    ///
    /// The store failed, or the letter cannot be read.
    ///
    /// # Examples
    ///
    /// A letter is dealt with elsewhere, and deleted when that is done: nothing is lost in between.
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn hand_over(timers: &DurableTimers, number: u64) -> Result<bool, DurableError> {
    ///     let Some(letter) = timers.dead_letter(number).await? else { return Ok(false) };
    ///     println!("{} failed: {}", letter.id, letter.error);
    ///     timers.delete_dead_letter(number).await
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-delete-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # assert!(!pollster::block_on(hand_over(&timers, 1))?);
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn dead_letter(&self, number: u64) -> Result<Option<DeadLetter>, DurableError> {
        let found = self.store.letter(number).await?;
        Ok(found.map(|dead| DeadLetter::new((number, dead))))
    }

    /// Removes a dead letter, whether it can be read or not: `true` if there was one of that
    /// number.
    ///
    /// # Errors
    ///
    /// The store failed. If the answer was lost the letter may have gone.
    pub async fn delete_dead_letter(&self, number: u64) -> Result<bool, DurableError> {
        self.store.delete_dead_letter(number).await
    }

    /// Removes a timer whose record cannot be read or is missing ([`DurableError::Corrupt`] names
    /// it). Returns `true` if there was one, and `false` if there is no timer of that id or it can
    /// be read. The payload is lost. [`repair`](Self::repair) repairs what it can, and loses
    /// nothing.
    ///
    /// This reads all due times of its store, or of its partition: it is for the rare case.
    ///
    /// # Errors
    ///
    /// The store failed.
    ///
    /// # Examples
    ///
    /// A list that a damaged record does not stop:
    ///
    /// ```
    /// use tourbillon_durable::{DurableError, DurableTimers};
    ///
    /// async fn mend(timers: &DurableTimers) -> Result<(), DurableError> {
    ///     let mut last: Option<String> = None;
    ///     loop {
    ///         match timers.list(last.as_deref(), 1000).await {
    ///             Ok(page) => match page.last() {
    ///                 Some(timer) => last = Some(timer.id.clone()),
    ///                 None => return Ok(()),
    ///             },
    ///             Err(DurableError::Corrupt { id: Some(id), .. }) => {
    ///                 eprintln!("{id} cannot be read, and goes");
    ///                 timers.remove_corrupt(&id).await?;
    ///             }
    ///             Err(error) => return Err(error),
    ///         }
    ///     }
    /// }
    /// # let file = std::env::temp_dir().join(format!("tourbillon-mend-{}", std::process::id()));
    /// # let timers = DurableTimers::open(&file)?;
    /// # pollster::block_on(mend(&timers))?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn remove_corrupt(&self, id: &str) -> Result<bool, DurableError> {
        self.store.discard(id).await
    }
}

/// A time that needs no rule.
fn plain(when: When) -> Due {
    match when {
        When::At(at) => Due::At(due(at)),
        When::After(delay) => Due::After(millis_up(delay)),
        When::ByRule => Due::After(0),
    }
}

fn check_id(id: &str) -> Result<(), DurableError> {
    match id.len() {
        1..=LONGEST_ID => Ok(()),
        length => Err(DurableError::IdLength { length, most: LONGEST_ID }),
    }
}
