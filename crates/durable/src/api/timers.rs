//! [`DurableTimers`], the interface for callers.

#![forbid(unsafe_code)]

use crate::delivery::feed::Shared;
#[cfg(feature = "file")]
use crate::embedded::Embedded;
use crate::error::{DurableError, MAX_ID_BYTES, MAX_PAYLOAD_BYTES};
use crate::model::clock::{due, millis_up};
use crate::model::condition::Condition;
use crate::model::durability::Durability;
use crate::model::json;
use crate::model::key::first_from;
use crate::model::options::{Options, When};
use crate::model::stats::Stats;
use crate::store::{AnyStore, Cancelled, Due, Insert, Inserted, Store};
use serde::Serialize;
#[cfg(feature = "file")]
use std::path::Path;
use std::sync::Arc;
use tourbillon::future::Timer;
use tourbillon::{Builder, Refused};

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
/// use tourbillon_durable::{Cancelled, DurableTimers, Existing, Inserted, Options};
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
///     assert_eq!(timers.cancel("trial of 7").await?, Cancelled::Removed);
///     assert_eq!(timers.get("trial of 7").await?, None);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DurableTimers {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) timer: Timer,
    pub(crate) feed: Shared,
}

impl DurableTimers {
    /// Opens an [`Embedded`] store in a file, or creates it if there is none, with its own driver.
    ///
    /// # Errors
    ///
    /// Fails like [`Embedded::open`], or if a thread could not be started.
    #[cfg(feature = "file")]
    pub fn open(file: impl AsRef<Path>) -> Result<Self, DurableError> {
        Self::spawn(Embedded::open(file)?)
    }

    /// Creates a handle for the timers of a store. `timer` wakes the workers.
    #[must_use]
    pub fn new(store: impl Into<AnyStore>, timer: &Timer) -> Self {
        Self { store: store.into().0, timer: timer.clone(), feed: Shared::default() }
    }

    /// Like [`new`](Self::new), with a timer whose driver has its own thread.
    ///
    /// # Errors
    ///
    /// Fails if the thread could not be started.
    ///
    /// # Examples
    ///
    /// A program that pauses a timer, while the workers run in other processes:
    ///
    /// ```no_run
    /// # #[cfg(feature = "redis")]
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use tourbillon_durable::{DurableTimers, Redis};
    ///
    /// let store = Redis::connect("redis://127.0.0.1/", "reminders").await?;
    /// DurableTimers::spawn(store)?.pause_timer("order 7").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn spawn(store: impl Into<AnyStore>) -> Result<Self, DurableError> {
        let timer = Timer::spawn(Builder::new().driver());
        let timer = timer.map_err(|error| DurableError::Io(error.to_string()))?;
        Ok(Self::new(store, &timer))
    }

    /// Inserts a timer. Completes when the timer is durable.
    ///
    /// # Errors
    ///
    /// Fails, and returns the payload, if the id or the payload is too long, the time is after the
    /// year 9999, an option is out of range, the id exists and the policy is
    /// [`Refuse`](crate::Existing::Refuse), or the store fails. No timer is inserted then, except
    /// perhaps after [`Io`](DurableError::Io) and [`Unreachable`](DurableError::Unreachable). In
    /// these two cases insert the timer again with [`Keep`](crate::Existing::Keep).
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

    /// Like [`insert`](Self::insert), with a value that serde serialises as JSON. The payload is
    /// JSON because it may rest for months, and must then be readable by a later version of the
    /// program, with more fields.
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
        if payload.len() > MAX_PAYLOAD_BYTES {
            let (length, most) = (payload.len(), MAX_PAYLOAD_BYTES);
            return Err(DurableError::PayloadLength { length, most });
        }
        // Only a rule needs the current time.
        let now = match options.settings.rule {
            Some(_) => self.store.now().await?,
            None => 0,
        };
        options.check(now)?;
        let due = match when {
            When::ByRule => match options.settings.next(now, now)? {
                Some(first) => Due::ByRule(first),
                None => {
                    return Err(DurableError::Rule(
                        "`When::ByRule` needs a rule, set one in `Options`".to_owned(),
                    ));
                }
            },
            when => plain(when),
        };
        let (id, payload) = (id.to_owned(), Arc::clone(payload));
        let Options { existing, over, settings } = options;
        self.store.insert(Insert { id, payload, due, existing, over, settings }).await
    }

    /// Cancels a timer. No attempt begins after this.
    ///
    /// A timer that is being delivered is [`Running`](Cancelled::Running). Its attempt continues,
    /// and acknowledges the delivery if it succeeds. It is the last one in any case, and the
    /// repetition and a timer inserted as [`Next`](Inserted::Next) are gone.
    ///
    /// # Errors
    ///
    /// Fails if the store fails. If the reply was lost, the timer may have been cancelled, and
    /// another call returns [`NotFound`](Cancelled::NotFound).
    pub async fn cancel(&self, id: &str) -> Result<Cancelled, DurableError> {
        self.store.cancel(id, None).await
    }

    /// Cancels a timer only if its last insert set a header to this value or, with `None`, did not
    /// set it. The store compares the header in the step that cancels the timer, as for
    /// [`Options::only_over`].
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Changed`] if there is no such timer, or if it was already
    /// cancelled. Also fails like [`cancel`](Self::cancel).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{Cancelled, DurableError, DurableTimers, Options};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-only-{}", std::process::id()));
    /// let timers = DurableTimers::open(&file)?;
    /// pollster::block_on(async {
    ///     let options = Options::new().header("version", "2");
    ///     timers.insert("order 7", "tea", Duration::from_secs(60), options).await?;
    ///     let cancelled = timers.cancel_only("order 7", "version", Some("1")).await;
    ///     assert_eq!(cancelled, Err(DurableError::Changed));
    ///     let cancelled = timers.cancel_only("order 7", "version", Some("2")).await;
    ///     assert_eq!(cancelled, Ok(Cancelled::Removed));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn cancel_only(
        &self,
        id: &str,
        name: &str,
        value: Option<&str>,
    ) -> Result<Cancelled, DurableError> {
        self.store.cancel(id, Some(Condition::header(name, value))).await
    }

    /// Moves a timer that waits to another time, and returns `true` if there was one. The timer is
    /// delivered at the new time only, with all its attempts. If it repeats, this moves the next
    /// delivery. A delivery that was [ordered](Self::run_now) is taken back. Returns `false` if
    /// there is no timer with this id.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Running`] if an attempt is running, or was running when its
    /// worker died. Also fails if the time is after the year 9999 or is `ByRule`, or if the store
    /// fails. The timer is unchanged in each case.
    pub async fn reset(&self, id: &str, when: impl Into<When>) -> Result<bool, DurableError> {
        let due = match when.into() {
            When::ByRule => {
                return Err(DurableError::Option("a reset needs a time, `At` or `After`"));
            }
            when => plain(when),
        };
        while !self.store.reset(id, due).await? {
            match self.store.get(id).await? {
                None => return Ok(false),
                Some(found) if found.fence.is_some() => return Err(DurableError::Running),
                // The attempt has ended since.
                Some(_) => {}
            }
        }
        Ok(true)
    }

    /// Makes a delivery at once, and returns `true` if there is a timer with this id. The state of
    /// the timer decides about the delivery:
    ///
    /// - **A timer without a rule is delivered now instead of later.** Once the delivery is
    ///   acknowledged, the timer is gone.
    /// - **A timer that repeats is delivered once more.** Its plan stays as it is, and follows this
    ///   delivery as its [`next`](crate::DurableTimer::next) one, unless the handler returns
    ///   [`Stop`](crate::Verdict::Stop).
    /// - **A timer that is retried gets its next attempt now.** The delivery, its token and the
    ///   number of the attempt are the same as without the call.
    /// - **A paused timer gets a single attempt that counts**, and stays paused. If the attempt
    ///   fails, the timer keeps the error, and another call makes another attempt.
    /// - **A timer that is due already is unchanged**, so a second call before the attempt begins
    ///   adds no delivery.
    ///
    /// A delivery that had not begun has the time of the call as its
    /// [planned](crate::Delivery::planned) time, and so a token of its own. It counts like any
    /// other delivery. It is retried with the [options](crate::Options) of the timer, and a time
    /// to live or a window counts from the call.
    ///
    /// A timer that was asked to run can still be cancelled, moved or paused before its attempt
    /// begins. A call to [`pause_timer`](Self::pause_timer) or [`reset`](Self::reset), or an
    /// [update](crate::Existing::Update) to another time, takes the delivery back, and the timer
    /// has its former time or the new one. While the store is [paused](Self::pause), the attempt
    /// waits.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Running`], and changes nothing, if an attempt is running, or was
    /// running when its worker died. Also fails if the store fails. If the reply was lost, the
    /// delivery may have been made, and another call makes another one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{DurableTimers, Options, When};
    ///
    /// # let file = std::env::temp_dir().join(format!("tourbillon-run-{}", std::process::id()));
    /// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
    /// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
    /// let timers = DurableTimers::open(&file)?;
    /// let worker = timers.worker().until(end); // `end` is ready when the program is to end
    /// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
    /// pollster::block_on(async {
    ///     let daily = Options::new().every(Duration::from_secs(86_400));
    ///     timers.insert("report", "of today", When::ByRule, daily).await?;
    ///     let planned = timers.get("report").await?.map(|timer| timer.planned);
    ///     assert!(timers.run_now("report").await?);
    ///     worker.run(|_| async { Ok::<(), String>(()) }).await?; // delivered already
    ///     let timer = timers.get("report").await?;
    ///     assert_eq!(timer.map(|timer| timer.planned), planned);
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # drop(timers);
    /// # std::fs::remove_file(&file)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn run_now(&self, id: &str) -> Result<bool, DurableError> {
        self.store.run_now(id).await
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

    /// Returns statistics of the store, for gauges and alerts. They are available even while the
    /// store is paused.
    ///
    /// In a file and in Redis, the cost does not depend on the number of timers that are due in the
    /// future. In a file, the index keys of overdue and of paused timers are read in steps of
    /// 10,000, and workers and callers continue between them. In Redis, each partition receives one
    /// request, and reads one number for each ten minutes with due times of overdue or paused
    /// timers. In PostgreSQL, an index of all timers and the rows of all timers that were leased,
    /// repeat or are paused are counted, which takes some tenths of a second for a million timers.
    /// The result is not a snapshot of the whole store, but of each partition in Redis, or of each
    /// step in a file.
    ///
    /// # Errors
    ///
    /// Fails if the store fails.
    pub async fn stats(&self) -> Result<Stats, DurableError> {
        let mut counts = self.store.stats(first_from(0)).await?;
        while let Some(next) = counts.next.take() {
            counts = counts.add(self.store.stats(next).await?);
        }
        Ok(counts.into())
    }

    /// Returns the events that acknowledged changes survive.
    ///
    /// In Redis each call asks each master for `INFO` and `CONFIG GET`.
    ///
    /// # Errors
    ///
    /// Fails if the store, or a master of a cluster, cannot be reached, or denies `INFO`.
    pub async fn durability(&self) -> Result<Durability, DurableError> {
        self.store.durability().await
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

pub(crate) fn check_id(id: &str) -> Result<(), DurableError> {
    match id.len() {
        1..=MAX_ID_BYTES => Ok(()),
        length => Err(DurableError::IdLength { length, most: MAX_ID_BYTES }),
    }
}
