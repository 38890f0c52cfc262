//! [`DurableTimers`], the interface for callers.

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

/// The maximum number of timers in a page of a list, because other callers wait for the store
/// meanwhile.
const LONGEST_PAGE: usize = 1000;

/// Timers of minutes to months that survive the process. Each has an id and a payload.
///
/// The timers are kept in a store, and a [worker](Self::run) delivers them **at least once, never
/// early by the store's clock, and acknowledged once for each id and planned time**. When the
/// future of an operation completes, its effect is durable, so nothing acknowledged is lost if the
/// process is killed. Works with any async runtime, or without one.
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

/// A timer in the store.
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
    /// The id.
    pub id: String,
    /// The payload that was passed to [`insert`](DurableTimers::insert).
    pub payload: Vec<u8>,
    /// The time of the delivery. Together with the id it identifies the delivery.
    pub planned: SystemTime,
    /// The time at which the next attempt begins or, while one is running, its lease ends.
    pub due: SystemTime,
    /// The number of attempts that have begun.
    pub attempts: u32,
    /// Set if an attempt is running, or was running when its worker died.
    pub running: bool,
    /// The error of the last failed attempt, or an empty string.
    pub error: String,
    /// The due time of the delivery that was inserted while this one was running
    /// ([`Inserted::Next`]).
    pub next: Option<SystemTime>,
}

/// A timer that was given up.
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
    /// The number, for [`redrive`](DurableTimers::redrive).
    pub number: u64,
    /// The timer's id.
    pub id: String,
    /// The payload that was passed to [`insert`](DurableTimers::insert).
    pub payload: Vec<u8>,
    /// The time at which the timer should have been delivered.
    pub planned: SystemTime,
    /// The time at which it was given up.
    pub died: SystemTime,
    /// The number of attempts that were counted.
    pub attempts: u32,
    /// The reason for giving up.
    pub reason: DeadReason,
    /// The error of the last failed attempt, or an empty string.
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
    /// Creates a handle for the timers of a store. `timer` wakes the workers.
    #[must_use]
    pub fn new(store: impl Into<AnyStore>, timer: &Timer) -> Self {
        Self { store: store.into().0, timer: timer.clone(), feed: Shared::default() }
    }

    /// Inserts a timer. Completes when the timer is durable.
    ///
    /// # Errors
    ///
    /// Fails, and returns the payload, if the id or the payload is too long, the time is after the
    /// year 9999, an option is out of range, the id exists and the policy is
    /// [`Refuse`](super::Existing::Refuse), or the store fails. No timer is inserted then, except
    /// that [`Io`](DurableError::Io) and [`Unreachable`](DurableError::Unreachable) leave it open.
    /// In these two cases insert the timer again with [`Keep`](super::Existing::Keep).
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

    /// Like [`insert`](Self::insert), with a value that serde serialises as JSON. JSON, because a
    /// payload may rest for months and must then be readable by a later version of the program,
    /// with more fields.
    ///
    /// # Errors
    ///
    /// Fails like [`insert`](Self::insert), or if the value cannot be serialised.
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
        // Only a rule needs the current time.
        let now = match options.settings.rule {
            Some(_) => self.store.now().await?,
            None => 0,
        };
        options.check(now)?;
        let due = match when {
            When::ByRule => match options.settings.next(now)? {
                Some(first) => Due::At(first),
                None => {
                    return Err(DurableError::Rule(
                        "`When::ByRule` needs a rule, set one in `Options`".to_owned(),
                    ));
                }
            },
            when => plain(when),
        };
        let (id, payload) = (id.to_owned(), Arc::clone(payload));
        let Options { existing, settings } = options;
        self.store.insert(Insert { id, payload, due, existing, settings }).await
    }

    /// Cancels a timer. Returns `true` if and only if the timer existed and will not be delivered
    /// (again).
    ///
    /// Returns `false` if there is no such timer. Also returns `false` if an attempt is running, or
    /// was running when its worker died. That delivery continues with its retries, but a repetition
    /// ends with it, and a timer inserted as [`Next`](Inserted::Next) is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn cancel(&self, id: &str) -> Result<bool, DurableError> {
        self.store.cancel(id).await
    }

    /// Moves a resting timer to another time, and returns `true` if there was one. The timer is
    /// delivered at the new time only, with all its attempts. If it repeats, this moves the next
    /// delivery.
    ///
    /// Returns `false` if there is no such timer, or an attempt is running, or was running when its
    /// worker died.
    ///
    /// # Errors
    ///
    /// Fails, and leaves the timer unchanged, if the time is after the year 9999 or is `ByRule`, or
    /// if the store fails.
    pub async fn reset(&self, id: &str, when: impl Into<When>) -> Result<bool, DurableError> {
        match when.into() {
            When::ByRule => Err(DurableError::Option("a reset needs a time, `At` or `After`")),
            when => self.store.reset(id, plain(when)).await,
        }
    }

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
    /// another.
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
        let list = self.store.list(after, limit.min(LONGEST_PAGE)).await?;
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

    /// Returns the number of dead letters.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn dead_len(&self) -> Result<u64, DurableError> {
        Ok(self.store.len().await?.1)
    }

    /// Returns up to `limit` dead letters with numbers greater than `after`, oldest first. To read
    /// all letters, pass the last number of each page for the next page until a page is empty. A
    /// page has at most 1000 letters, and fewer if they are long.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if a letter cannot be read. The error then names the letter,
    /// and the list can continue after it.
    ///
    /// # Examples
    ///
    /// All dead letters, redriven page by page:
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

    /// Redrives a dead letter. The timer is due at once, under its old id and planned time, with
    /// all its attempts and no time to live. Returns `false` if the number does not exist.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Exists`] if a timer with its id exists, such as its own next
    /// repetition. The letter stays. To deliver it anyway, insert its [payload](Self::dead_letter)
    /// under another id and [delete](Self::delete_dead_letter) the letter. Also fails if the store
    /// fails.
    pub async fn redrive(&self, number: u64) -> Result<bool, DurableError> {
        self.store.redrive(number).await
    }

    /// Returns the dead letter with this number.
    ///
    /// # Errors
    ///
    /// Fails if the store fails, or if the letter cannot be read.
    ///
    /// # Examples
    ///
    /// A letter that is handled elsewhere and deleted afterwards, so that a crash in between loses
    /// nothing:
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

    /// Deletes a dead letter, even if it cannot be read. Returns `true` if the number existed.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. If the reply was lost, the letter may have been deleted.
    pub async fn delete_dead_letter(&self, number: u64) -> Result<bool, DurableError> {
        self.store.delete_dead_letter(number).await
    }

    /// Removes a timer whose record is missing or cannot be read ([`DurableError::Corrupt`] names
    /// it), with its payload. Returns `true` if there was one, and `false` if there is no timer
    /// with this id or it can be read. To recover what can be recovered without loss, call
    /// [`repair`](Self::repair).
    ///
    /// Reads all due times of the store, or in Redis of the partition, so it is meant for rare
    /// cases.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    ///
    /// # Examples
    ///
    /// A list that does not stop at damaged records:
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

/// Converts a time that needs no rule.
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
