//! The errors of durable timers. Each says what is wrong, and what is allowed.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::time::SystemTime;
use tourbillon::{Refusal, Refused};

/// The most bytes of an id.
pub(super) const LONGEST_ID: usize = 512;

/// The most bytes of a payload.
pub(super) const LONGEST_PAYLOAD: usize = 1 << 20;

/// Why durable timers could not do what was asked. Nothing is half done.
///
/// # Examples
///
/// A server that tells a client why its timer was refused:
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableError, DurableTimers, Options};
///
/// fn status(error: &DurableError) -> u16 {
///     match error {
///         DurableError::IdLength { .. } | DurableError::PayloadLength { .. } => 400,
///         DurableError::Exists => 409,
///         DurableError::ReadOnly(_) | DurableError::Unreachable(_) => 503, // try again later
///         _ => 500,
///     }
/// }
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-error-{}", std::process::id()));
/// let timers = DurableTimers::open(&file)?;
/// let inserted = timers.insert("", "a timer without an id", Duration::ZERO, Options::new());
/// let refused = pollster::block_on(inserted).unwrap_err();
/// assert_eq!(status(&refused.reason), 400);
/// assert_eq!(refused.to_string(), "an id of 0 bytes was given; 1 to 512 are allowed");
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurableError {
    /// The id is empty, or longer than allowed.
    IdLength {
        /// Its length in bytes.
        length: usize,
        /// The most that is allowed; at least one byte is.
        most: usize,
    },
    /// The payload is longer than allowed.
    PayloadLength {
        /// Its length in bytes.
        length: usize,
        /// The most that is allowed.
        most: usize,
    },
    /// The time lies beyond what a store holds.
    BeyondRange {
        /// The last time that is allowed.
        latest: SystemTime,
    },
    /// There is a timer of that id already, and [`Existing::Refuse`](super::Existing::Refuse) was
    /// chosen; or one stands in the way of a dead letter.
    Exists,
    /// An option is out of its range.
    Option(&'static str),
    /// The address of a server cannot be used: it cannot be read, asks for what this build has not
    /// (`rediss://` without a TLS feature of the crate `redis`), or leads to a node of a cluster
    /// where a single one is wanted.
    Address(String),
    /// The server may remove timers when its memory is full. Allowed is a policy that lets keys
    /// without a time to live alone: `noeviction`, or any `volatile-…`.
    Evicts {
        /// Its `maxmemory-policy`.
        policy: String,
    },
    /// A rule of repetition is asked for and there is none, it cannot be read, or names no time to
    /// come.
    Rule(String),
    /// A value cannot be written as JSON, or read from it.
    Json(String),
    /// The store cannot be written now: no space is left, it is read-only, or a replica. Nothing
    /// was done.
    ReadOnly(String),
    /// Another process, or another handle of this one, has the store open.
    Locked(String),
    /// The file is no such store, or is damaged; or one timer cannot be read.
    Corrupt {
        /// The timer that cannot be read, if it is one alone: all others can be, and
        /// [`remove_corrupt`](super::DurableTimers::remove_corrupt) removes it.
        id: Option<String>,
        /// The damaged part, and where it is.
        what: String,
    },
    /// The store has been written by another version of this crate.
    Format {
        /// The version of the file's layout.
        found: u64,
        /// The version that is read here.
        known: u64,
    },
    /// The store in Redis was emptied since it was opened (`FLUSHALL`, a restart without persisted
    /// data, a failover to an empty node). A worker's [`run`](super::Worker::run) ends with this
    /// error once. Earlier timers are lost. The store can be used, and another run delivers timers
    /// that are scheduled from now on.
    Emptied,
    /// The store in Redis was emptied since it was opened, and another process has created it again
    /// with another number of partitions. This handle can no longer be used: connect again.
    Remade {
        /// The number of partitions that the store has now.
        partitions: u64,
    },
    /// The store cannot be reached, or did not answer in time. The operation may have been done:
    /// schedule it again and [keep](super::Existing::Keep) what is there.
    Unreachable(String),
    /// The store does not let us in, or not do this: a wrong password, or a right that is missing.
    Denied(String),
    /// Reading or writing failed. The operation may have been done: schedule it again and
    /// [keep](super::Existing::Keep) what is there. A store that is open goes on by itself when it
    /// can.
    Io(String),
    /// The timer that wakes a worker takes no sleep.
    Timer(Refusal),
    /// The store, or the timer that wakes its workers, has been shut down.
    Closed,
}

impl DurableError {
    /// A store that is none, or damaged.
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { id: None, what: what.into() }
    }

    /// The record of a timer that cannot be read.
    pub(super) fn corrupt_timer(id: &str) -> Self {
        Self::Corrupt { id: Some(id.to_owned()), what: format!("the record of {id:?}") }
    }

    /// A timer of which the index has a key and the store has no record.
    pub(super) fn missing_timer(id: &str) -> Self {
        let what = format!("the record of {id:?}, to which the index leads, is missing");
        Self::Corrupt { id: Some(id.to_owned()), what }
    }

    /// Keys of the index that are not in order.
    pub(super) fn out_of_order(id: &str) -> Self {
        let what = format!("the index of due times is not in order at {id:?}");
        Self::Corrupt { id: Some(id.to_owned()), what }
    }

    /// A dead letter that cannot be read.
    pub(super) fn corrupt_letter(number: u64) -> Self {
        Self::corrupt(format!("the dead letter {number}"))
    }

    /// Returns `true` if the error passes once the disk works again, or the file is closed
    /// elsewhere.
    pub(super) fn passes(&self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Io(_) | Self::Locked(_))
    }

    /// The same, and says where.
    pub(super) fn at(self, place: &str) -> Self {
        let named = |what: String| format!("{place}: {what}");
        match self {
            Self::ReadOnly(what) => Self::ReadOnly(named(what)),
            Self::Locked(what) => Self::Locked(named(what)),
            Self::Corrupt { id, what } => Self::Corrupt { id, what: named(what) },
            Self::Io(what) => Self::Io(named(what)),
            other => other,
        }
    }
}

impl fmt::Display for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdLength { length, most } => {
                write!(f, "an id of {length} bytes was given; 1 to {most} are allowed")
            }
            Self::PayloadLength { length, most } => {
                write!(f, "a payload of {length} bytes was given; at most {most} are allowed")
            }
            Self::BeyondRange { .. } => f.write_str("the time is beyond the end of the year 9999"),
            Self::Exists => f.write_str("there is a timer of that id already"),
            Self::Option(what) => write!(f, "out of range: {what}"),
            Self::Address(what) => write!(f, "the address: {what}"),
            Self::Evicts { policy } => write!(
                f,
                "the server may remove timers: its maxmemory-policy is {policy}; noeviction and \
                 volatile-… are allowed"
            ),
            Self::Rule(what) => write!(f, "the rule of repetition: {what}"),
            Self::Json(what) => write!(f, "the payload as JSON: {what}"),
            Self::ReadOnly(what) => write!(f, "the store cannot be written: {what}"),
            Self::Locked(what) => write!(f, "the store is open elsewhere: {what}"),
            Self::Corrupt { id: Some(_), what } => write!(f, "a timer cannot be read: {what}"),
            Self::Corrupt { id: None, what } => {
                write!(f, "the store is no such store, or damaged: {what}")
            }
            Self::Format { found, known } => {
                write!(f, "the store has the layout {found}; known here is {known}")
            }
            Self::Emptied => f.write_str("the store was emptied: its timers have gone"),
            Self::Remade { partitions } => write!(
                f,
                "the store was emptied and made anew with {partitions} partitions; connect again"
            ),
            Self::Unreachable(what) => write!(f, "the store does not answer: {what}"),
            Self::Denied(what) => write!(f, "the store denies access: {what}"),
            Self::Io(what) => write!(f, "reading or writing the store failed: {what}"),
            Self::Timer(refusal) => write!(f, "the timer that wakes the worker: {refusal}"),
            Self::Closed => f.write_str("the store or its timer has been shut down"),
        }
    }
}

impl Error for DurableError {}

/// Keeps the reason and drops the payload.
impl<V> From<Refused<DurableError, V>> for DurableError {
    fn from(refused: Refused<Self, V>) -> Self {
        refused.reason
    }
}
