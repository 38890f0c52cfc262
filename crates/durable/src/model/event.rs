//! [`Event`], which a worker reports to its observer, and the types in it.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::record::DeadReason;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// An event of a worker, as received by [`Worker::observe`](crate::Worker::observe).
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Event, Options, Outcome};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-event-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let (send, attempts) = mpsc::channel();
/// let worker = timers.worker().until(end).observe(move |event| {
///     match event {
///         Event::Attempt(attempt) => drop(send.send(attempt.clone())),
///         Event::Waiting { reason, error } => eprintln!("waiting, {reason:?}: {error:?}"),
///         event => println!("{event:?}"),
///     }
/// #     let _ = done.unbounded_send(());
/// }); // `end` is ready when the program is to end
/// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, Options::new()))?;
/// pollster::block_on(worker.run(|_| async { Ok::<(), String>(()) }))?;
///
/// let attempt = attempts.recv()?;
/// assert_eq!((attempt.id.as_str(), attempt.attempt), ("order 7", 1));
/// assert_eq!(attempt.outcome, Outcome::Acknowledged);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt has ended. Its outcome is durable, with the exceptions that [`Outcome`] lists.
    /// Skipped occurrences, timers that cannot be read, and attempts that were given back before
    /// their handler was called are also reported as attempts.
    Attempt(Attempt),
    /// An attempt has lost its lease, so the result of its handler does not count. This is reported
    /// as soon as the worker notices it, once for each attempt and before its end.
    LeaseLost {
        /// The timer's id.
        id: String,
        /// The number of the attempt.
        attempt: u32,
        /// The reason.
        reason: LeaseLoss,
    },
    /// The worker has begun to wait. It checks this once a second, and reports one reason at a
    /// time.
    Waiting {
        /// The reason.
        reason: Wait,
        /// The last error of the store, if one is known.
        error: Option<DurableError>,
    },
    /// The worker no longer waits for this reason.
    Resumed {
        /// The reason of the wait.
        reason: Wait,
        /// The duration of the wait, from the check that found its beginning to the check that
        /// found its end.
        waited: Duration,
    },
    /// The worker is no longer notified of timers that other processes insert, because the
    /// subscription has broken. In PostgreSQL the reason may also be a transaction pooler, which
    /// loses notices without an error (see `PostgresOptions::poll_only`). Until
    /// [`NoticesRestored`](Self::NoticesRestored) the worker polls the store once a second, so
    /// timers with a short delay may be up to a second late.
    NoticesLost,
    /// The worker is notified of timers from other processes again.
    NoticesRestored,
    /// The worker has gained partitions of a store in Redis.
    PartitionsGained {
        /// The numbers of these partitions.
        partitions: BTreeSet<u64>,
    },
    /// Another worker has taken over partitions of a store in Redis. A worker that ends gives up
    /// its partitions without this event.
    PartitionsLost {
        /// The numbers of these partitions.
        partitions: BTreeSet<u64>,
    },
    /// The store in Redis was emptied while it was in use. The run then ends with
    /// [`DurableError::Emptied`].
    Emptied,
    /// The log of attempts (feature `log`) failed. Timers are delivered nevertheless. The worker
    /// also reports this at its start if the log cannot be opened.
    LogFailed {
        /// The number of ended attempts that are not in the log because of this.
        lost: u64,
        /// The error, or `None` if the attempts ended faster than they could be written, or no
        /// reply came before the worker ended.
        error: Option<DurableError>,
    },
    /// The file with the log of attempts (feature `log`) was damaged, and a new file was begun.
    LogSetAside {
        /// The present name of the damaged file.
        file: PathBuf,
    },
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// The timer's id.
    pub id: String,
    /// The planned time of the delivery.
    pub planned: SystemTime,
    /// The due time of this attempt, which is later than `planned` for a retry.
    pub due: SystemTime,
    /// The number of the attempt, starting at 1.
    pub attempt: u32,
    /// The outcome of the attempt.
    pub outcome: Outcome,
    /// The time from `due` to the start of the handler, or to the lease if the handler was not
    /// called.
    pub lateness: Duration,
    /// The duration of the handler, or `None` if it was not called.
    pub duration: Option<Duration>,
    /// The status that the handler has [noted](crate::Delivery::note_status).
    pub status: Option<u16>,
}

/// The reason why a worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wait {
    /// The store, or a part of it, has not replied for two seconds.
    StoreAway,
    /// The store has not replied for two seconds, and its last write failed, for example because
    /// the disk is full ([`DurableError::ReadOnly`]).
    StoreReadOnly,
    /// The store has not replied for two seconds, because it denies access with the present
    /// `Credentials` ([`DurableError::Denied`]).
    StoreDenied,
    /// The store is [paused](crate::DurableTimers::pause).
    StorePaused,
    /// Timers are due, but the [maximum number](crate::Worker::concurrency) of handlers is running.
    Busy,
    /// Other workers own all partitions of the store in Redis, because there are more workers than
    /// partitions. This worker only takes over timers that other workers leave overdue, and
    /// partitions once one of those workers ends.
    NoPartition,
}

impl Wait {
    /// All names.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 6] =
        ["store_away", "store_read_only", "store_denied", "store_paused", "busy", "no_partition"];

    /// Returns the name of the variant in snake case, such as `store_away`, for logs and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::StoreAway => "store_away",
            Self::StoreReadOnly => "store_read_only",
            Self::StoreDenied => "store_denied",
            Self::StorePaused => "store_paused",
            Self::Busy => "busy",
            Self::NoPartition => "no_partition",
        }
    }
}

/// The reason why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeaseLoss {
    /// The timer was replaced, or another worker has taken over the lease.
    TakenOver,
    /// No renewal succeeded in time. The handler was stopped.
    RanOut,
}

impl LeaseLoss {
    /// All names.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 2] = ["taken_over", "ran_out"];

    /// Returns the name of the variant in snake case, such as `ran_out`, for logs and labels.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TakenOver => "taken_over",
            Self::RanOut => "ran_out",
        }
    }
}

/// The outcome of an attempt. Every outcome except [`TooLate`](Self::TooLate),
/// [`Unanswered`](Self::Unanswered) and [`Unreadable`](Self::Unreadable) is durable.
///
/// # Examples
///
/// A log of failures:
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{DurableTimers, Event, Options, Outcome};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-outcome-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let worker = timers.worker().until(end).observe(move |event| {
/// #     let _ = done.unbounded_send(());
///     let Event::Attempt(attempt) = event else { return };
///     match &attempt.outcome {
///         Outcome::Acknowledged => {}
///         Outcome::Retry { wait, error } => println!("{}: {error}; in {wait:?}", attempt.id),
///         Outcome::Dead { reason, error } => eprintln!("{}: {reason:?}: {error}", attempt.id),
///         outcome => eprintln!("{}: {outcome:?}", attempt.id),
///     }
/// }); // `end` is ready when the program is to end
/// let once = Options::new().attempts(1);
/// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, once))?;
/// pollster::block_on(worker.run(|_| async { Err::<(), _>("there is no such customer") }))?;
/// # assert_eq!(pollster::block_on(timers.dead_len())?, 1);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler returned [`Verdict::Done`](crate::Verdict::Done). This happens once for each id
    /// and planned time.
    Acknowledged,
    /// The attempt failed and will be retried.
    Retry {
        /// The minimum wait before the retry.
        wait: Duration,
        /// The error of the attempt.
        error: String,
    },
    /// No attempt was made, because the occurrence was later than its window
    /// ([`Misfire::SkipAfter`](crate::Misfire::SkipAfter)).
    Missed {
        /// The time since the occurrence was planned.
        late: Duration,
        /// The next occurrence, which is due at once if it is still within the window. `None` if
        /// the rule has no further one, so that the timer is gone.
        next: Option<SystemTime>,
    },
    /// The handler returned [`Verdict::Again`](crate::Verdict::Again).
    Again {
        /// The minimum wait before the next attempt.
        wait: Duration,
        /// `true` if this attempt counts.
        counted: bool,
    },
    /// The timer became a dead letter.
    Dead {
        /// The reason.
        reason: DeadReason,
        /// The error of the last attempt.
        error: String,
    },
    /// The timer was cancelled while this attempt was running ([`Cancelled::Running`]), and the
    /// attempt did not succeed. The timer has ended, without a retry and without a dead letter. A
    /// timer that was inserted after the cancel is delivered next.
    ///
    /// [`Cancelled::Running`]: crate::Cancelled::Running
    Cancelled {
        /// The error of the attempt, or an empty string.
        error: String,
    },
    /// The attempt was given back, and does not count. Either the handler returned
    /// [`Verdict::GiveBack`](crate::Verdict::GiveBack), or the worker was asked to end, and the
    /// handler had not begun, or was still running at the [limit](crate::Worker::until_within). The
    /// timer of a worker that ends is due at once.
    GivenBack,
    /// The lease was taken over or the timer was replaced, so the handler's result does not count.
    TooLate,
    /// The worker was asked to end, and the store did not reply before the lease had run out. It is
    /// unknown whether the handler's result counts. If it does not, the timer is delivered again.
    Unanswered,
    /// No attempt was made, because the timer's record is missing or cannot be read (a damaged
    /// file, or another program wrote to the store). To find the extent of the damage, call
    /// [`DurableTimers::check`]. Other timers are delivered. This timer is read and reported again
    /// after a minute. The number of the attempt is 0, and its planned time is its due time.
    ///
    /// [`DurableTimers::check`]: crate::DurableTimers::check
    Unreadable {
        /// The record that cannot be read, and the reason.
        error: String,
    },
}

impl Outcome {
    /// All names.
    #[cfg(feature = "metrics")]
    pub(crate) const NAMES: [&str; 10] = [
        "acknowledged",
        "retry",
        "missed",
        "again",
        "dead",
        "cancelled",
        "given_back",
        "too_late",
        "unanswered",
        "unreadable",
    ];

    /// Returns the name of the variant in snake case, such as `given_back`, for logs and labels.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Retry { .. } => "retry",
            Self::Missed { .. } => "missed",
            Self::Again { .. } => "again",
            Self::Dead { .. } => "dead",
            Self::Cancelled { .. } => "cancelled",
            Self::GivenBack => "given_back",
            Self::TooLate => "too_late",
            Self::Unanswered => "unanswered",
            Self::Unreadable { .. } => "unreadable",
        }
    }

    /// Returns the outcome if the timer had been cancelled.
    pub(crate) fn cancelled(self) -> Self {
        match self {
            Self::Retry { error, .. } | Self::Dead { error, .. } => Self::Cancelled { error },
            _ => Self::Cancelled { error: String::new() },
        }
    }
}
