//! [`Verdict`], the result of a handler.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::time::Duration;

/// The result of a handler, which decides what becomes of the timer.
///
/// A handler returns anything that converts into a verdict, such as a `Result<(), E>` (an error is
/// a retry) or a `Result<Verdict, E>`, where `?` works.
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
///         410 => Verdict::fail("the receiver is gone"),
///         429 => Verdict::Again { after: Duration::from_secs(7), counted: false },
///         status => Verdict::retry(format_args!("{url} has replied {status}")),
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
        /// The minimum wait, counted from the store's acceptance of the verdict.
        after: Duration,
        /// Set if the attempt counts. The timer then becomes a dead letter if it was the last. If
        /// it does not count, the next attempt has the same number, and only the
        /// [time to live](crate::Options::time_to_live) limits the repetitions.
        counted: bool,
    },
    /// The handler could not do its work, through no fault of the delivery, for example because a
    /// resource of this machine is used up. The timer is delivered again, with the same number of
    /// the attempt. Only the [time to live](crate::Options::time_to_live) limits the repetitions.
    GiveBack {
        /// The minimum wait, counted from the store's acceptance of the verdict.
        after: Duration,
        /// The [error](crate::DurableTimer::error) of the timer from now on. With `None` it does
        /// not change.
        error: Option<String>,
    },
}

impl Verdict {
    /// Returns [`Retry`](Self::Retry) with this error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Verdict;
    ///
    /// assert_eq!(Verdict::retry("it is busy"), Verdict::Retry("it is busy".to_owned()));
    /// ```
    #[must_use]
    pub fn retry(error: impl Display) -> Self {
        Self::Retry(error.to_string())
    }

    /// Returns [`Fail`](Self::Fail) with this error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{Delivery, Verdict};
    ///
    /// async fn handle(delivery: Delivery) -> Verdict {
    ///     match delivery.json::<u64>() {
    ///         Ok(order) => remind(order).await.into(), // an error is a retry
    ///         Err(error) => Verdict::fail(error),      // it will not get better
    ///     }
    /// }
    /// # async fn remind(_order: u64) -> Result<(), String> { Ok(()) }
    /// # assert_eq!(Verdict::fail("x"), Verdict::Fail("x".to_owned()));
    /// # drop(handle);
    /// ```
    #[must_use]
    pub fn fail(error: impl Display) -> Self {
        Self::Fail(error.to_string())
    }

    /// Returns [`Stop`](Self::Stop) with this error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Verdict;
    ///
    /// assert_eq!(Verdict::stop("it is gone"), Verdict::Stop("it is gone".to_owned()));
    /// ```
    #[must_use]
    pub fn stop(error: impl Display) -> Self {
        Self::Stop(error.to_string())
    }
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
        handled.unwrap_or_else(Self::retry)
    }
}
