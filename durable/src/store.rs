//! The interface of a store: the transitions of timers, each whole or not at all.
//!
//! [`Store`] is all that the rest of the module knows of a database. Every operation answers by a future
//! that is ready when what it did is durable; a store may do many of them in one transaction. The
//! policy (how many attempts, how long to wait, what comes next) is the worker's, so that a store
//! only ever moves records.

#![forbid(unsafe_code)]

use super::check::{Checked, Cursor};
use super::clock::{LATEST, Millis, system};
use super::error::DurableError;
use super::key::{Key, Page};
use super::record::{Dead, DeadReason, Record, Settings};
use super::window::Window;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// The answer of an operation of a store, ready once it is durable.
pub(super) type Answer<T> = Pin<Box<dyn Future<Output = Result<T, DurableError>> + Send>>;

/// How many bytes of records are read at a time, or somewhat more, before a list ends: others wait
/// for whoever reads.
pub(super) const LONGEST_LIST: usize = 8 << 20;

/// A database of timers.
pub(super) trait Store: fmt::Debug + Send + Sync {
    /// The store's clock.
    fn now(&self) -> Answer<Millis>;

    /// Nothing → resting. If the id exists, the outcome depends on the chosen policy. If an
    /// existing timer is kept but may end with its running attempt, the new one is scheduled after
    /// it.
    fn insert(&self, timer: Insert) -> Answer<Inserted>;

    /// Resting → nothing: `true`. A leased timer loses its repetition rule and its next delivery:
    /// `false`.
    fn cancel(&self, id: &str) -> Answer<bool>;

    /// Resting → resting, due and planned at another time, its attempts forgotten: `true`.
    fn reset(&self, id: &str, due: Due) -> Answer<bool>;

    /// Returns the record of a timer.
    fn get(&self, id: &str) -> Answer<Option<Record>>;

    /// Up to `limit` timers that come after the id `after`, in an order of the store's that does
    /// not change; fewer if they are long. None: these were the last.
    fn list(&self, after: Option<&str>, limit: usize) -> Answer<Vec<(String, Record)>>;

    /// How many timers there are, and how many dead letters.
    fn len(&self) -> Answer<(u64, u64)>;

    /// A worker joins. From now on, notifies `window` of every change to a key that this worker owns:
    /// after the change is durable, before the caller is answered, in commit order. A store that
    /// cannot order its transactions reports additions only; the set then only grows, order does
    /// not matter, and a removed key costs one refused lease.
    ///
    /// Returns the worker's number.
    fn join(&self, window: &Arc<Window>) -> u64;

    /// Returns `true` if all keys belong to every worker, so that the workers of a process join as
    /// one and hand out its keys among themselves.
    fn shares_keys(&self) -> bool {
        false
    }

    /// A worker asks for its keys, up to `limit` of them, from `from` on, due by `until`, oldest
    /// first. Who does not ask for some seconds may lose its keys to others.
    fn load(&self, worker: u64, from: Key, until: Millis, limit: usize) -> Answer<Page>;

    /// A worker has ended: its keys go to others.
    fn leave(&self, worker: u64) -> Answer<()>;

    /// Resting and due → leased, one attempt more. Leased, and the lease has run out → leased anew.
    /// The key may be stale. A key that is still in the index but has no record is damage, and is
    /// answered as unreadable.
    fn lease(&self, key: &Key) -> Answer<Leasing>;

    /// Leased under this fence → what comes next: `true`. `false`: the lease was taken over, or the
    /// timer replaced; nothing is changed.
    fn finish(&self, id: &str, fence: u64, finish: Finish) -> Answer<bool>;

    /// A worker has waited for long for what it has asked about a timer: until the answer is
    /// dropped, what the same part of the store has is [withheld](Self::is_withheld).
    fn stalled(&self, _worker: u64, _id: &str) -> Option<Stalled> {
        None
    }

    /// Returns `true` if the part of the store that has this timer does not answer now. Once it
    /// does, all near keys are loaded again.
    fn is_withheld(&self, _worker: u64, _id: &str) -> bool {
        false
    }

    /// Up to `limit` dead letters whose numbers come after `after`, oldest first; fewer if they are
    /// long. None: these were the last.
    fn dead(&self, after: Option<u64>, limit: usize) -> Answer<Vec<(u64, Dead)>>;

    /// Dead letter → resting, due now. `false`: there is none of that number.
    fn redrive(&self, number: u64) -> Answer<bool>;

    /// The dead letter of that number.
    fn letter(&self, number: u64) -> Answer<Option<Dead>>;

    /// Dead letter → nothing: `true`. `false`: there is none of that number.
    fn delete_dead_letter(&self, number: u64) -> Answer<bool>;

    /// A timer whose record cannot be read, or that has only keys in the index → nothing: `true`.
    /// `false` if there is no such timer, or it can be read.
    fn discard(&self, id: &str) -> Answer<bool>;

    /// Compares records with the index of due times in both directions, in one step of bounded size
    /// that begins at a position. Changes nothing.
    fn check(&self, from: Cursor) -> Answer<Checked>;

    /// Rebuilds the index from the records, and moves records under a damaged id back to their own.
    /// Unreadable records stay, with their keys.
    fn repair(&self) -> Answer<()>;
}

/// A part of a store does not answer, until this is dropped.
pub(super) type Stalled = Box<dyn Send>;

/// When a timer is to be due.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    At(Millis),
    After(Millis),
}

impl Due {
    /// As a time of the store, whose clock says `now`.
    pub(super) fn time(self, now: Millis) -> Result<Millis, DurableError> {
        let time = match self {
            Due::At(time) => time,
            Due::After(delay) => now.saturating_add(delay),
        };
        match time {
            0..=LATEST => Ok(time),
            _ => Err(DurableError::BeyondRange { latest: system(LATEST) }),
        }
    }
}

/// A timer to schedule.
#[derive(Clone, Debug)]
pub(super) struct Insert {
    pub(super) id: String,
    pub(super) payload: Arc<Vec<u8>>,
    pub(super) due: Due,
    pub(super) existing: super::options::Existing,
    pub(super) settings: Settings,
}

/// The outcome of scheduling a timer.
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
/// A polling handler that schedules its own timer again:
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
    /// There was none of that id.
    New,
    /// A timer existed and was kept, because it rests, repeats, already has a next delivery, or is
    /// being delivered for the same planned time.
    Kept,
    /// A timer exists and is being delivered. The new one is delivered after it, whatever the
    /// outcome.
    Next,
    /// There was one, which has gone.
    Replaced,
}

/// The outcome of an attempt to lease a timer.
#[derive(Debug)]
pub(super) enum Leasing {
    Taken(Box<Lease>),
    /// It is due at another time, or somebody else has it until then.
    NotDue {
        due: Millis,
        now: Millis,
    },
    NotFound,
    /// Its record cannot be read; nothing is changed.
    Unreadable(DurableError),
}

/// A timer that is this worker's for a while.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) fence: u64,
    pub(super) now: Millis,
    /// Set if it was taken over: the attempt that it counts has failed by its lease.
    pub(super) overrun: bool,
    /// Due when the lease ends.
    pub(super) record: Record,
}

/// How a lease ends.
#[derive(Clone, Debug)]
pub(super) enum Finish {
    /// Acknowledged; the next delivery of a repetition is planned then.
    Done { next: Option<Millis> },
    /// Failed; tried again after so long.
    Retry { wait: Millis, error: String },
    /// Given up; the next delivery of a repetition is planned then.
    Dead { reason: DeadReason, error: String, next: Option<Millis> },
}

/// Any store: what [`DurableTimers::new`](super::DurableTimers::new) takes, made of one of them.
///
/// # Examples
///
/// The configuration of a program says which store it has:
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
pub struct AnyStore(pub(super) Arc<dyn Store>);
