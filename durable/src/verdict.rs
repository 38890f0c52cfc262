//! [`Verdict`], the result of a handler.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::time::Duration;

/// The result of a handler, which decides what becomes of the timer.
///
/// A handler returns anything that converts into a verdict, such as a `Result<(), E>` (an error is
/// a retry) or a `Result<Verdict, E>`, in which `?` works.
///
/// # Examples
///
/// A webhook whose receiver may be busy, or gone:
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::{Delivery, DurableError, Verdict};
///
/// async fn call(delivery: Delivery) -> Result<Verdict, DurableError> {
///     let url: String = delivery.json()?; // an error is a retry
///     Ok(match post(&url).await {
///         200 => Verdict::Done,
///         410 => Verdict::Fail(format!("{url} is gone")),
///         429 => Verdict::Again { after: Duration::from_secs(7), counted: false },
///         status => Verdict::Retry(format!("{url} has replied {status}")),
///     })
/// }
/// # async fn post(url: &str) -> u16 {
/// #     if url.contains("gone") { 410 } else { 200 }
/// # }
/// #
/// # use tourbillon_durable::{DeadReason, DurableTimers, Options};
/// # let file = std::env::temp_dir().join(format!("tourbillon-verdict-{}", std::process::id()));
/// # let timers = DurableTimers::open(&file)?;
/// # let (done, ends) = futures_channel::mpsc::unbounded::<()>();
/// # let worker = timers.worker().until(async move {
/// #     futures_util::StreamExt::collect::<Vec<_>>(futures_util::StreamExt::take(ends, 2)).await;
/// # });
/// # let worker = worker.observe(move |_| drop(done.unbounded_send(())));
/// # pollster::block_on(async {
/// #     for url in ["https://example.org/", "https://example.org/gone"] {
/// #         timers.insert_json(url, url, Duration::ZERO, Options::new()).await?;
/// #     }
/// #     worker.run(call).await?;
/// #     let letters = timers.dead_letters(None, 9).await?;
/// #     assert_eq!((letters.len(), letters[0].reason), (1, DeadReason::Failed));
/// #     Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # drop(timers);
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// The delivery is acknowledged.
    Done,
    /// The attempt has failed with this error. The timer is retried after its backoff, or becomes a
    /// dead letter if the attempt was the last.
    Retry(String),
    /// The attempt has failed with this error, and no other can succeed. The timer becomes a dead
    /// letter at once. If the timer repeats, only this delivery becomes one, and the timer rests
    /// until its next occurrence.
    Fail(String),
    /// The attempt has failed with this error, and no other delivery of the timer can succeed. The
    /// timer becomes a dead letter at once like with [`Fail`](Self::Fail), and its repetition ends.
    Stop(String),
    /// The timer is delivered again, with the same planned time and token.
    Again {
        /// The minimum wait, from the time at which the store accepts the verdict.
        after: Duration,
        /// Set if the attempt counts. The timer then becomes a dead letter if it was the last. If
        /// it does not count, the next attempt has the same number, and only the
        /// [time to live](super::Options::time_to_live) limits the repetitions.
        counted: bool,
    },
    /// The handler could not do its work, through no fault of the delivery, for example because a
    /// resource of this machine is used up. The timer is delivered again, with the same number of
    /// the attempt. Only the [time to live](super::Options::time_to_live) limits the repetitions.
    GiveBack {
        /// The minimum wait, from the time at which the store accepts the verdict.
        after: Duration,
        /// The [error](super::DurableTimer::error) of the timer from now on. It stays as it was
        /// with `None`.
        error: Option<String>,
    },
}

/// `Ok` is [`Done`](Verdict::Done), and an error a [`Retry`](Verdict::Retry).
impl<E: Display> From<Result<(), E>> for Verdict {
    fn from(handled: Result<(), E>) -> Self {
        Self::from(handled.map(|()| Self::Done))
    }
}

/// An error is a [`Retry`](Verdict::Retry).
impl<E: Display> From<Result<Self, E>> for Verdict {
    fn from(handled: Result<Self, E>) -> Self {
        handled.unwrap_or_else(|error| Self::Retry(error.to_string()))
    }
}
