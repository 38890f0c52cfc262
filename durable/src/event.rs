//! [`Event`], the end of an attempt as a worker reports it.

#![forbid(unsafe_code)]

use super::record::DeadReason;
use std::time::{Duration, SystemTime};

/// The end of an attempt, for [`Worker::observe`](super::Worker::observe).
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
/// let (send, events) = mpsc::channel::<Event>();
/// let worker = timers.worker().until(end).observe(move |event| {
///     let _ = send.send(event.clone());
/// #     let _ = done.unbounded_send(());
/// }); // `end` is ready when the program is to end
/// pollster::block_on(timers.insert("order 7", "unpaid", Duration::ZERO, Options::new()))?;
/// pollster::block_on(worker.run(|_| async { Ok::<(), String>(()) }))?;
///
/// let event = events.recv()?;
/// assert_eq!((event.id.as_str(), event.attempt), ("order 7", 1));
/// assert_eq!(event.outcome, Outcome::Acknowledged);
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The timer's id.
    pub id: String,
    /// The time for which the delivery was planned.
    pub planned: SystemTime,
    /// The number of the attempt.
    pub attempt: u32,
    /// The outcome of the attempt.
    pub outcome: Outcome,
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
/// use tourbillon_durable::{DurableTimers, Options, Outcome};
///
/// # let file = std::env::temp_dir().join(format!("tourbillon-outcome-{}", std::process::id()));
/// # let (done, mut end) = futures_channel::mpsc::unbounded::<()>();
/// # let end = async move { drop(futures_util::StreamExt::next(&mut end).await) };
/// let timers = DurableTimers::open(&file)?;
/// let worker = timers.worker().until(end).observe(move |event| {
/// #     let _ = done.unbounded_send(());
///     match &event.outcome {
///         Outcome::Acknowledged => {}
///         Outcome::Retry { wait, error } => println!("{}: {error}; again in {wait:?}", event.id),
///         Outcome::Dead { reason, error } => eprintln!("{}: {reason:?}: {error}", event.id),
///         outcome => eprintln!("{}: {outcome:?}", event.id),
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
    /// The handler returned [`Verdict::Done`]. This happens once for each id and planned time.
    Acknowledged,
    /// The attempt failed and will be retried.
    Retry {
        /// The minimum wait before the retry.
        wait: Duration,
        /// The error of the attempt.
        error: String,
    },
    /// No attempt was made, because the occurrence was later than its window
    /// ([`Misfire::SkipAfter`](super::Misfire::SkipAfter)).
    Missed {
        /// The time since the occurrence was planned.
        late: Duration,
        /// The next occurrence, which is due at once if it is still within the window. `None` if
        /// the rule has no further one, so that the timer is gone.
        next: Option<SystemTime>,
    },
    /// The handler returned [`Verdict::Again`].
    Again {
        /// The minimum wait before the next attempt.
        wait: Duration,
        /// Set if this attempt counts.
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
    /// [`Cancelled::Running`]: super::Cancelled::Running
    Cancelled {
        /// The error of the attempt, or an empty string.
        error: String,
    },
    /// The worker was asked to end, and the attempt was given back, because the handler had not
    /// begun, or was still running at the [limit](super::Worker::until_within). The timer is due at
    /// once, and the attempt does not count.
    GivenBack,
    /// The lease was taken over or the timer was replaced, so the handler's result does not count.
    TooLate,
    /// The worker was asked to end, and the store did not reply before the lease had run out. It is
    /// unknown if the handler's result counts. If it does not, the timer is delivered again.
    Unanswered,
    /// No attempt was made, because the timer's record is missing or cannot be read (a damaged
    /// file, or another program wrote to the store). To find the extent of the damage, call
    /// [`DurableTimers::check`]. Other timers are delivered. This timer is read and reported again
    /// after a minute. The event's time is the time at which it was due, and its attempt is 0.
    ///
    /// [`DurableTimers::check`]: super::DurableTimers::check
    Unreadable {
        /// The record that cannot be read, and the reason.
        error: String,
    },
}

impl Outcome {
    /// Returns the outcome if the timer had been cancelled.
    pub(super) fn cancelled(self) -> Self {
        match self {
            Self::Retry { error, .. } | Self::Dead { error, .. } => Self::Cancelled { error },
            _ => Self::Cancelled { error: String::new() },
        }
    }
}
