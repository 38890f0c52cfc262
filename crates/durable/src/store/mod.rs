//! The interface of a store. Each transition of a timer is atomic.
//!
//! [`Store`] is everything that the rest of the crate knows about a database. Every operation
//! returns a future that completes when its effect is durable, and a store may execute many
//! operations in one transaction. The worker owns the policy (number of attempts, backoff, next
//! run), so a store only moves records.

#![forbid(unsafe_code)]

#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod call_timeout;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod credentials;
pub(crate) mod options;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod ownership;
#[cfg(feature = "redis")]
pub(crate) mod partitions;
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) mod remote;
#[cfg(any(feature = "postgres-tls", feature = "redis-tls"))]
pub(crate) mod tls;
#[cfg(feature = "file")]
pub(crate) mod transitions;
pub(crate) mod update;
pub(crate) mod window;

use crate::error::DurableError;
use crate::model::bounds::LetterBounds;
use crate::model::check::{Checked, Cursor};
use crate::model::clock::{LATEST, Millis, system};
use crate::model::condition::Condition;
use crate::model::durability::Durability;
use crate::model::event::Event;
use crate::model::key::{Key, Page};
use crate::model::label::Label;
#[cfg(feature = "log")]
use crate::model::log::{LogBounds, LoggedAttempt};
use crate::model::record::{Dead, DeadReason, Record, Settings};
use crate::model::stats::Counts;
use crate::store::window::Window;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The result of a store operation, available once it is durable.
pub(crate) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, DurableError>> + Send>>;

/// A list ends after this number of bytes of records, because a long read delays other callers.
pub(crate) const MAX_LIST_BYTES: usize = 8 << 20;

/// The maximum number of timers in a page of a list, because other callers wait for the store
/// meanwhile.
pub(crate) const MAX_PAGE: usize = 1000;

/// A database of timers.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Returns the events that acknowledged changes survive.
    fn durability(&self) -> Answer<Durability>;

    /// Returns the time of the store's clock.
    fn now(&self) -> Answer<Millis>;

    /// Nothing → resting. If the id exists, the chosen [`Existing`](crate::Existing) policy
    /// decides. If an existing timer is kept but may end with its running attempt, the new timer is
    /// scheduled after it. Nothing changes if the existing timer does not meet the condition of the
    /// new one.
    fn insert(&self, timer: Insert) -> Answer<Inserted>;

    /// Resting → nothing. Leased → leased and cancelled, without its repetition rule and its next
    /// delivery. Nothing changes if the timer does not meet the condition.
    fn cancel(&self, id: &str, only: Option<Condition>) -> Answer<Cancelled>;

    /// Resting → resting with another due and planned time, no attempts and no order, `true`.
    fn reset(&self, id: &str, due: Due) -> Answer<bool>;

    /// Resting or paused → the same and due now, `true`. A delivery that has not begun is planned
    /// for now, and keeps its former planned time as its plan. A paused timer gets a single attempt
    /// that counts.
    fn run_now(&self, id: &str) -> Answer<bool>;

    /// Any state → the same, paused or not, `true`. A leased timer is paused once it rests. A
    /// paused timer has no attempt, and its key is parked behind all other keys. A pause takes an
    /// order back. If there is a label, a timer without it is left alone and has
    /// [changed](DurableError::Changed).
    fn pause_timer(&self, id: &str, pauses: bool, label: Option<Label>) -> Answer<bool>;

    /// Pauses the store, so that no lease is granted from now on, or resumes it. Afterwards all
    /// workers load again.
    fn pause(&self, pauses: bool) -> Answer<()>;

    /// Returns `true` if the store is paused.
    fn is_paused(&self) -> Answer<bool>;

    /// Returns the record of a timer.
    fn get(&self, id: &str) -> Answer<Option<Record>>;

    /// Returns up to `limit` timers after the id `after`, in a stable order that the store chooses.
    /// The list is shorter if the records are long, and empty at the end.
    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>>;

    /// Returns the ids of up to `limit` timers with a label, in the order of `ids`. The list is
    /// empty at the end.
    fn label_ids(&self, label: Label, ids: Ids, limit: usize) -> Answer<Vec<String>>;

    /// Returns the number of timers with a label, as far as one bounded step counts them, and the
    /// id after which the next step begins.
    fn label_len(&self, label: Label, after: Option<String>) -> Answer<(u64, Option<String>)>;

    /// Returns the timers with the first of some ids, or with all of them unless the records are
    /// long. A timer that does not exist or cannot be read is `None`.
    fn get_each(&self, ids: Vec<String>) -> Answer<Vec<(String, Option<Record>)>>;

    /// Returns the timers whose keys are in the index from `from` on and up to the time `until`, in
    /// order. Reads up to `limit` keys, at least 1, or fewer if the records are long. A timer that
    /// cannot be read is left out.
    fn find(&self, from: Key, until: Millis, limit: usize) -> Answer<Found>;

    /// Returns the number of keys in each of some ranges of due times, from the first time until
    /// before the second, counted up to `most`.
    fn due_counts(&self, ranges: Vec<(Millis, Millis)>, most: u64) -> Answer<Vec<u64>>;

    /// Returns a time after which no timer waits for a retry.
    fn retries_until(&self) -> Answer<Millis>;

    /// Returns the number of timers and the number of dead letters.
    fn len(&self) -> Answer<(u64, u64)>;

    /// Returns the numbers of the store, as far as one bounded step counts them. The first step
    /// begins at the first key.
    fn stats(&self, from: Key) -> Answer<Counts>;

    /// Adds a worker. From now on the store notifies `window` of every change to a key that the
    /// worker owns, after the change is durable, before its caller gets the result, and in commit
    /// order. A store that cannot order its transactions reports additions only. The set then only
    /// grows, order does not matter, and a removed key costs one rejected lease.
    ///
    /// Returns the worker's number.
    fn join(&self, window: &Arc<Window>) -> u64;

    /// Returns `true` if all keys belong to every worker, so that the workers of a process join as
    /// one and divide its keys among themselves.
    fn has_shared_keys(&self) -> bool {
        false
    }

    /// Loads up to `limit` keys of a worker, from `from` on and due by `until`, oldest first. A
    /// worker that does not load for some seconds may lose its keys to other workers.
    fn load(&self, worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page>;

    /// Removes a worker, whose keys become available to others.
    fn leave(&self, worker: u64) -> Answer<()>;

    /// Resting and due → leased, with one more attempt. Leased with an expired lease → leased
    /// again. The key may be stale. A key without a record that is still in the index is damage,
    /// and the result is `Unreadable`.
    fn lease(&self, key: &Key) -> Answer<Leasing>;

    /// Leased with an expired lease → leased again, even if the store is paused.
    fn take_over(&self, key: &Key) -> Answer<Leasing>;

    /// Leased under this fencing token → the state that `finish` selects. A cancelled timer is
    /// acknowledged by [`Finish::Done`]. Any other end removes it, or continues with a delivery
    /// that was inserted after the cancel.
    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<Finished>;

    /// Leased under this fencing token → leased for as long again, from now on. Nothing changes if
    /// the lease was taken over or the timer was replaced. An expired lease that was not taken over
    /// is renewed.
    fn renew(&self, id: &str, fence: u64) -> Answer<Renewed>;

    /// Notes that a worker has waited long for a reply about a timer. Until the returned value is
    /// dropped, timers in the same part of the store are [withheld](Self::is_withheld).
    fn stalled(&self, _worker: u64, _id: &str) -> Option<Stalled> {
        None
    }

    /// Returns `true` if the part of the store that holds this timer does not respond. Once it
    /// responds, the window is loaded again.
    fn is_withheld(&self, _worker: u64, _id: &str) -> bool {
        false
    }

    /// Returns `true` if other workers own all keys, and none are left for this worker.
    fn is_spare(&self, _worker: u64) -> bool {
        false
    }

    /// Returns the events of a worker since the last call, except the events of its attempts.
    fn take_events(&self, _worker: u64) -> Vec<Event> {
        Vec::new()
    }

    /// Returns the error that makes operations of workers wait, if it is known.
    fn trouble(&self) -> Option<DurableError> {
        None
    }

    /// Returns up to `limit` dead letters, in the order of `letters`. The list is shorter if the
    /// letters are long, and empty at the end.
    fn dead(&self, letters: Letters, limit: usize) -> Answer<Vec<(u64, Dead)>>;

    /// Returns the numbers of up to `limit` dead letters of some timers, in the order of `letters`,
    /// without reading other letters. A letter may have been deleted since, and a damaged index may
    /// name a letter of another timer.
    fn letters_of(&self, of: LettersOf, letters: Letters, limit: usize) -> Answer<Vec<u64>>;

    /// Returns the bounds of the dead letters. The store applies them when it writes a letter, as
    /// far as it can within that step, and workers apply them at intervals.
    fn letter_bounds(&self) -> LetterBounds;

    /// Returns the numbers of up to `limit` dead letters after `after`, oldest first, and when each
    /// was given up. The time of a letter that cannot be read may be unknown, and is then in the
    /// far future.
    fn letter_ages(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Millis)>>;

    /// Dead letter → resting and due now, `true`. The result is `false` if the number does not
    /// exist.
    fn redrive(&self, number: u64) -> Answer<bool>;

    /// Returns the dead letter with this number.
    fn letter(&self, number: u64) -> Answer<Option<Dead>>;

    /// Dead letter → nothing, `true`. The result is `false` if the number does not exist.
    fn delete_dead_letter(&self, number: u64) -> Answer<bool>;

    /// Timer with an unreadable record, or with index keys only → nothing, `true`. The result is
    /// `false` if there is no such timer, or if it can be read.
    fn discard(&self, id: &str) -> Answer<bool>;

    /// Writes timers as they are in another store, in place of existing ones.
    fn copy_timers(&self, timers: Vec<(String, Record)>) -> Answer<()>;

    /// Writes dead letters as they are in another store, unless they exist already.
    fn copy_letters(&self, letters: Vec<Dead>) -> Answer<()>;

    /// Compares records with the index of due times in both directions, in one bounded step from a
    /// position. Changes nothing.
    fn check(&self, from: Cursor) -> Answer<Checked>;

    /// Rebuilds the index from the records, and moves records under a damaged id back to their own
    /// id. Unreadable records stay, with their keys.
    fn repair(&self) -> Answer<()>;

    /// Adds attempts to the log, in order, and deletes the oldest attempts beyond the bounds. No
    /// other operation waits for it. If it fails, the attempts may be in the log.
    #[cfg(feature = "log")]
    fn log_add(&self, attempts: Vec<LoggedAttempt>, bounds: LogBounds) -> Answer<()>;

    /// Returns up to `limit` attempts of the log, of one timer or of all, latest first.
    #[cfg(feature = "log")]
    fn log_latest(&self, id: Option<String>, limit: usize) -> Answer<Vec<LoggedAttempt>>;
}

/// The dead letters from a position on, in one of the two orders of their numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Letters {
    /// The letters with greater numbers, or all, oldest first.
    After(Option<u64>),
    /// The letters with smaller numbers, or all, newest first.
    Before(Option<u64>),
}

/// The timers whose dead letters are looked up in the index of letters.
#[derive(Clone, Debug)]
pub(crate) enum LettersOf {
    /// The timer with this id.
    Id(String),
    /// The timers with this label.
    Label(Label),
}

impl LettersOf {
    /// Returns `true` if a letter belongs to these timers.
    pub(crate) fn includes(&self, dead: &Dead) -> bool {
        match self {
            Self::Id(id) => dead.id == *id,
            Self::Label(label) => dead.record.settings.labels.contains(label),
        }
    }
}

/// The ids from a position on, in one of the two directions of their order, byte by byte.
#[derive(Clone, Debug)]
pub(crate) enum Ids {
    /// The greater ids, or all, least first.
    After(Option<String>),
    /// The lesser ids, or all, greatest first.
    Before(Option<String>),
}

impl Ids {
    /// Returns the ids beyond an id, in the same direction.
    pub(crate) fn beyond(&self, id: String) -> Self {
        match self {
            Self::After(_) => Self::After(Some(id)),
            Self::Before(_) => Self::Before(Some(id)),
        }
    }
}

impl Letters {
    /// Returns the letters beyond a number, in the same order.
    pub(crate) fn beyond(self, number: u64) -> Self {
        match self {
            Self::After(_) => Self::After(Some(number)),
            Self::Before(_) => Self::Before(Some(number)),
        }
    }
}

/// Timers in the order of the index.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) timers: Vec<(String, Record)>,
    /// The position where there may be more timers, or `None` at the end.
    pub(crate) next: Option<Key>,
}

/// Marks a part of a store as unresponsive until it is dropped.
pub(crate) type Stalled = Box<dyn Send>;

/// The due time of a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    At(Millis),
    After(Millis),
    /// At this time, which is an occurrence of the timer's rule.
    ByRule(Millis),
}

impl Due {
    /// Converts it to a time of the store, whose clock reads `now`.
    pub(crate) fn time(self, now: Millis) -> Result<Millis, DurableError> {
        let time = match self {
            Due::At(time) | Due::ByRule(time) => time,
            Due::After(delay) => now.saturating_add(delay),
        };
        match time {
            0..=LATEST => Ok(time),
            _ => Err(DurableError::BeyondRange { latest: system(LATEST) }),
        }
    }
}

/// A timer to insert.
#[derive(Clone, Debug)]
pub(crate) struct Insert {
    pub(crate) id: String,
    pub(crate) payload: Arc<Vec<u8>>,
    pub(crate) due: Due,
    pub(crate) existing: crate::model::options::Existing,
    pub(crate) over: Option<Condition>,
    pub(crate) settings: Settings,
}

/// The outcome of [`DurableTimers::insert`](crate::DurableTimers::insert).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Existing, Inserted, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-inserted-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let insert = |payload, existing| {
///     let options = Options::new().existing(existing);
///     pollster::block_on(timers.insert("order 7", payload, Duration::from_secs(60), options))
/// };
/// assert_eq!(insert("unpaid", Existing::Refuse)?, Inserted::New);
/// assert_eq!(insert("again", Existing::Keep)?, Inserted::Kept);
/// assert_eq!(insert("half of it is paid", Existing::Replace)?, Inserted::Replaced);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A polling handler that inserts its own timer again:
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Delivery, DurableTimers, Existing, Inserted, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-poll-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let again = timers.clone();
/// let poll = move |delivery: Delivery| {
///     let (timers, keep) = (again.clone(), Options::new().existing(Existing::Keep));
///     async move {
///         println!("is {} paid?", delivery.id); // and if it is not:
///         let hour = Duration::from_secs(3600);
///         let inserted = timers.insert(&delivery.id, delivery.payload, hour, keep).await?;
///         assert_eq!(inserted, Inserted::Next);
///         Ok::<(), tourbillon_durable::DurableError>(())
///     }
/// };
/// pollster::block_on(timers.insert("order 7", "", Duration::ZERO, Options::new()))?;
/// let worker = timers.worker().until(end); // `end` is ready when the program is to end
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// pollster::block_on(worker.run(poll))?;
/// assert!(pollster::block_on(timers.get("order 7"))?.is_some());
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Inserted {
    /// The id was free.
    New,
    /// A timer existed and was kept, because it rests, repeats, already has a next delivery, or is
    /// being delivered for the same planned time.
    Kept,
    /// A timer exists and is being delivered. The new timer is delivered after it, whatever the
    /// outcome.
    Next,
    /// A timer existed and was replaced.
    Replaced,
    /// A timer existed and was [updated](crate::Existing::Update).
    Updated,
}

/// The outcome of [`DurableTimers::cancel`](crate::DurableTimers::cancel).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Cancelled, DurableTimers, Options};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-cancelled-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// pollster::block_on(async {
///     let day = Duration::from_secs(86_400);
///     timers.insert("order 7", "unpaid", day, Options::new()).await?;
///     match timers.cancel("order 7").await? {
///         Cancelled::Removed => println!("it will not be delivered"),
///         Cancelled::Running => println!("it is being delivered, for the last time"),
///         _ => println!("there is no such timer, or it was delivered"),
///     }
///     assert_eq!(timers.cancel("order 7").await?, Cancelled::NotFound);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The timer was resting, and is gone. No attempt begins.
    Removed,
    /// An attempt is running, or was running when its worker died. If it succeeds, the delivery is
    /// acknowledged. Otherwise the timer [ends](crate::Outcome::Cancelled) without a retry and
    /// without a dead letter. Its repetition and its [next](Inserted::Next) delivery are gone.
    Running,
    /// There is no timer with this id.
    NotFound,
}

/// The outcome of the end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    Accepted,
    /// The timer had been cancelled and its attempt did not succeed, so it has ended.
    Cancelled,
    /// The lease was taken over or the timer was replaced. Nothing was changed.
    TooLate,
    /// A transaction of another client has locked the timer. Nothing was changed.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only Postgres has them"))]
    Locked,
}

/// The outcome of a request for a lease.
#[derive(Debug)]
pub(crate) enum Leasing {
    Taken(Box<Lease>),
    /// The timer is due at another time, or leased until then.
    NotDue {
        due: Millis,
        now: Millis,
    },
    NotFound,
    /// A transaction of another client has locked the timer, and may stay open for long.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "only Postgres has them"))]
    Locked {
        now: Millis,
    },
    /// The store is paused.
    Paused,
    /// The record cannot be read. Nothing was changed.
    Unreadable(DurableError),
}

/// The outcome of the renewal of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Held {
        /// The length of the lease, which may have been updated.
        length: Millis,
        /// Set if the timer was cancelled under this lease.
        cancelled: bool,
    },
    Lost,
}

/// A timer that a worker owns for a limited time.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) fence: u64,
    pub(crate) now: Millis,
    /// The previous due time of the timer.
    pub(crate) due: Millis,
    /// Set if the lease was taken over, so that the attempt it counts has failed.
    pub(crate) overrun: bool,
    /// The record, due when the lease ends.
    pub(crate) record: Record,
}

/// The end of a lease.
#[derive(Clone, Debug)]
pub(crate) enum Finish {
    /// Acknowledged, or skipped because it was later than its window. A repetition continues at
    /// `next`.
    Done { next: Option<Millis> },
    /// To be attempted again after `wait`. An attempt that is not counted is given back.
    Retry { wait: Millis, error: String, counted: bool },
    /// Given up. A repetition continues at `next`.
    Dead { reason: DeadReason, error: String, next: Option<Millis> },
}

/// Any store, for [`DurableTimers::new`](crate::DurableTimers::new).
///
/// # Examples
///
/// A program that selects its store by configuration:
///
/// ```
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon_durable::{AnyStore, DurableError, DurableTimers, Embedded};
///
/// fn store(place: &str) -> Result<AnyStore, DurableError> {
///     match place.strip_prefix("file:") {
///         Some(file) => Ok(Embedded::open(file)?.into()),
///         None => Err(DurableError::Address(place.to_owned())), // or one in Redis
///     }
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-any-{}", std::process::id()));
/// # let place = format!("file:{}", file.display());
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let timers = DurableTimers::new(store(&place)?, &timer);
/// assert!(pollster::block_on(timers.is_empty())?);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AnyStore(pub(crate) Arc<dyn Store>);
