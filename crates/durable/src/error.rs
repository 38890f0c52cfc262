//! The errors of durable timers. Each names the problem and the allowed values.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::time::SystemTime;
use tourbillon::{Refusal, Refused};

/// The maximum length of an id in bytes.
pub(super) const MAX_ID_BYTES: usize = 512;

/// The maximum length of a payload in bytes.
pub(super) const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// An error of a durable timer operation. Operations are atomic and leave nothing half done.
///
/// # Examples
///
/// A server that reports to its client why a timer was rejected:
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
/// assert_eq!(refused.to_string(), "the id has 0 bytes (1 to 512 are allowed)");
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurableError {
    /// The id is empty or too long.
    IdLength {
        /// The length in bytes.
        length: usize,
        /// The maximum length. The minimum is one byte.
        most: usize,
    },
    /// The payload is too long.
    PayloadLength {
        /// The length in bytes.
        length: usize,
        /// The maximum length.
        most: usize,
    },
    /// The time is beyond the range of a store.
    BeyondRange {
        /// The latest time that is allowed.
        latest: SystemTime,
    },
    /// A timer with this id exists, and [`Existing::Refuse`](crate::Existing::Refuse) was chosen or
    /// a dead letter cannot be redriven because of it.
    Exists,
    /// There is no timer with this id whose last insert meets the condition of
    /// [`only_over`](crate::Options::only_over) or
    /// [`cancel_only`](crate::DurableTimers::cancel_only). Read the timer again.
    Changed,
    /// An attempt of the timer is running, or was running when its worker died. Try again once it
    /// has ended.
    Running,
    /// The store must be paused for this.
    NotPaused,
    /// An option is out of range.
    Option(&'static str),
    /// The address of a server is unusable. It cannot be parsed, needs a feature that this build
    /// lacks (`rediss://` without the feature `redis-tls`, or `sslmode=require` without
    /// `postgres-tls`), or leads to a cluster node where a single node is required.
    Address(String),
    /// The server may evict timers when its memory is full. Allowed are policies that keep keys
    /// without a time to live: `noeviction` and every `volatile-…`.
    Evicts {
        /// The address of the server.
        server: String,
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is too old. Redis 7.0 or later is needed, or Valkey, or PostgreSQL 13.
    Version {
        /// The address of the server.
        server: String,
        /// The name and version of the server.
        found: String,
    },
    /// The repetition rule is missing, cannot be parsed, or has no future occurrence.
    Rule(String),
    /// A value cannot be converted to or from JSON.
    Json(String),
    /// The store cannot be written now, because there is no space left, it is read-only, or it is a
    /// replica. The operation was not executed.
    ReadOnly(String),
    /// Another process, or another handle of this process, has the store open.
    Locked(String),
    /// The file is not a timer store or is damaged, or one timer cannot be read.
    Corrupt {
        /// The id of the unreadable timer, if the damage is limited to it. All other timers can be
        /// read, and [`remove_corrupt`](crate::DurableTimers::remove_corrupt) removes this one.
        id: Option<String>,
        /// The damaged part and its location.
        what: String,
    },
    /// The store was written by another version of this crate.
    Format {
        /// The layout version of the store.
        found: u64,
        /// The layout version that this build supports.
        known: u64,
    },
    /// The functions of the store in PostgreSQL are older than this version, or any role may
    /// execute the functions that have the rights of their owner, and the connected role may not
    /// change them. Their owner has to open the store once with this version, or to run `timers
    /// migrate`.
    Outdated {
        /// The revision of the store.
        found: u64,
        /// The revision that this build needs.
        known: u64,
        /// The role that owns the store.
        owner: String,
    },
    /// A role that the connected role does not trust owns the schema of a store in PostgreSQL, or
    /// an object in it, or could add an object. Its code would be executed with the rights of the
    /// connected role. The connected role trusts itself, the roles it is a member of, superusers,
    /// and the role that `PostgresOptions::owner` names.
    ForeignOwner {
        /// The object or the right.
        object: String,
        /// The role.
        owner: String,
    },
    /// The store in Redis was emptied after it was opened (`FLUSHALL`, a restart without persisted
    /// data, a failover to an empty node). A worker's [`run`](crate::Worker::run) ends with this
    /// error once. Earlier timers are lost. The store remains usable, and another run delivers
    /// timers that are inserted from now on.
    Emptied,
    /// The store in Redis was emptied after it was opened, and another process has created it again
    /// with a different number of partitions. This handle is no longer usable. Connect again.
    Remade {
        /// The current number of partitions.
        partitions: u64,
    },
    /// The store cannot be reached, or did not respond in time. The operation may have been
    /// executed. Insert the timer again with [`Keep`](crate::Existing::Keep).
    Unreachable(String),
    /// A connection by TLS was refused, because the server's certificate is not trusted, the server
    /// demands a client certificate, rejects it or has no TLS, or a certificate cannot be read.
    Tls(String),
    /// Access denied, because of wrong credentials or a missing permission.
    Denied(String),
    /// Reading or writing failed. The operation may have been executed. Insert the timer again with
    /// [`Keep`](crate::Existing::Keep). An open store recovers by itself when it can.
    Io(String),
    /// The timer that wakes the worker refused a sleep.
    Timer(Refusal),
    /// The store, or the timer that wakes its workers, was shut down.
    Closed,
}

impl DurableError {
    /// Returns the error for a file that is not a timer store, or is damaged.
    pub(super) fn corrupt(what: impl Into<String>) -> Self {
        Self::Corrupt { id: None, what: what.into() }
    }

    /// Returns the error for a timer whose record cannot be read.
    pub(super) fn corrupt_timer(id: &str) -> Self {
        Self::Corrupt { id: Some(id.to_owned()), what: format!("damaged record of {id:?}") }
    }

    /// Returns the error for a timer that has a key in the index but no record.
    pub(super) fn missing_timer(id: &str) -> Self {
        let what = format!("the record of {id:?} is missing, although the index has its key");
        Self::Corrupt { id: Some(id.to_owned()), what }
    }

    /// Returns the error for index keys that are out of order.
    pub(super) fn out_of_order(id: &str) -> Self {
        let what = format!("the index of due times is out of order at {id:?}");
        Self::Corrupt { id: Some(id.to_owned()), what }
    }

    /// Returns the error for a dead letter that cannot be read.
    pub(super) fn corrupt_letter(number: u64) -> Self {
        Self::corrupt(format!("damaged dead letter {number}"))
    }

    /// Returns `true` if the error is temporary, that is, gone once the disk works again or the
    /// other handle is closed.
    pub(super) fn is_temporary(&self) -> bool {
        matches!(self, Self::ReadOnly(_) | Self::Io(_) | Self::Locked(_))
    }

    /// Adds the location to the message.
    pub(super) fn at(self, place: &str) -> Self {
        let named = |what: String| format!("{place}: {what}");
        match self {
            Self::ReadOnly(what) => Self::ReadOnly(named(what)),
            Self::Locked(what) => Self::Locked(named(what)),
            Self::Corrupt { id, what } => Self::Corrupt { id, what: named(what) },
            Self::Address(what) => Self::Address(named(what)),
            Self::Unreachable(what) => Self::Unreachable(named(what)),
            Self::Tls(what) => Self::Tls(named(what)),
            Self::Denied(what) => Self::Denied(named(what)),
            Self::Io(what) => Self::Io(named(what)),
            other => other,
        }
    }
}

/// Returns an address for messages, which shows only the scheme. The rest of a wrong address may
/// contain a password anywhere.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(super) fn scheme_of(address: &str) -> String {
    let is_scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '+');
    match address.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}://…"),
        _ => "the address".to_owned(),
    }
}

impl fmt::Display for DurableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IdLength { length, most } => {
                write!(f, "the id has {length} bytes (1 to {most} are allowed)")
            }
            Self::PayloadLength { length, most } => {
                write!(f, "the payload has {length} bytes (at most {most} are allowed)")
            }
            Self::BeyondRange { .. } => f.write_str("the time is after the end of the year 9999"),
            Self::Exists => f.write_str("a timer with this id already exists"),
            Self::Changed => {
                f.write_str("the timer was changed since it was read, or there is no such timer")
            }
            Self::Running => f.write_str("an attempt of the timer is running"),
            Self::NotPaused => f.write_str("the store is not paused"),
            Self::Option(what) => write!(f, "invalid option: {what}"),
            Self::Address(what) => write!(f, "invalid address: {what}"),
            Self::Version { server, found } => {
                let postgres = found.starts_with("PostgreSQL");
                let least = if postgres { "PostgreSQL 13" } else { "Redis 7.0" };
                write!(f, "{server}: the server is {found} ({least} or later is needed)")
            }
            Self::Evicts { server, policy } => write!(
                f,
                "{server}: the server may evict timers: its maxmemory-policy is {policy} (noeviction and \
                 volatile-… are allowed)"
            ),
            Self::Rule(what) => write!(f, "invalid repetition rule: {what}"),
            Self::Json(what) => write!(f, "invalid JSON payload: {what}"),
            Self::ReadOnly(what) => write!(f, "the store is read-only: {what}"),
            Self::Locked(what) => write!(f, "the store is open elsewhere: {what}"),
            Self::Corrupt { id: Some(_), what } => write!(f, "unreadable timer: {what}"),
            Self::Corrupt { id: None, what } => {
                write!(f, "not a timer store, or damaged: {what}")
            }
            Self::Format { found, known } => {
                write!(f, "the store has layout {found} (this version supports {known})")
            }
            Self::Outdated { found, known, owner } => write!(
                f,
                "the store has revision {found} (this version needs {known}, which PUBLIC may not execute): \
                 its owner {owner:?} must upgrade it (`timers migrate`)"
            ),
            Self::ForeignOwner { object, owner } => write!(
                f,
                "{object} belongs to {owner:?}, which is not trusted (allowed are the connected role, \
                 roles that it is a member of, superusers, and the owner in the options)"
            ),
            Self::Emptied => f.write_str("the store was emptied and its timers are lost"),
            Self::Remade { partitions } => write!(
                f,
                "the store was emptied and created again with {partitions} partitions: connect again"
            ),
            Self::Unreachable(what) => write!(f, "the store is unreachable: {what}"),
            Self::Tls(what) => write!(f, "the TLS connection was refused: {what}"),
            Self::Denied(what) => write!(f, "access denied: {what}"),
            Self::Io(what) => write!(f, "could not read or write the store: {what}"),
            Self::Timer(refusal) => write!(f, "the timer refused to wake the worker: {refusal}"),
            Self::Closed => f.write_str("the store or its timer was shut down"),
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
