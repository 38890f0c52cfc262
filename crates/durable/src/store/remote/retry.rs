//! [`RetryPolicy`], how long a request is retried, and [`retry`], which does it.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::remote::error::{Kind, RequestError};
use crate::store::remote::host::Host;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The timeout of a reply.
pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// The first wait before a retry.
const MIN_PAUSE: Duration = Duration::from_millis(10);

/// The longest wait before a retry.
pub(crate) const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The timeout of statements that count many rows.
#[cfg(feature = "postgres")]
pub(crate) const COUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a request is retried.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryPolicy {
    /// Gives up after the call timeout of the store, or when the server rejects the request.
    Caller,
    /// Retries until it succeeds, for a worker.
    Worker,
    /// Gives up after one reply timeout and the longest pause, because the request is repeated
    /// later.
    #[cfg(feature = "redis")]
    Page,
    /// Gives up after half a reply timeout, for a worker with other partitions to load. A
    /// background task then keeps trying this partition.
    #[cfg(feature = "redis")]
    Probe,
    /// Gives up after a longer time, for a statement that reads many rows.
    #[cfg(feature = "postgres")]
    Count,
}

impl RetryPolicy {
    /// Returns how long a request is retried, in a store with this call timeout.
    pub(crate) fn longest(self, call_timeout: Duration) -> Option<Duration> {
        match self {
            Self::Caller => Some(call_timeout),
            Self::Worker => None,
            // Enough to find that the connection does not reply.
            #[cfg(feature = "redis")]
            Self::Page => Some(REPLY_TIMEOUT + MAX_PAUSE),
            #[cfg(feature = "redis")]
            Self::Probe => Some(REPLY_TIMEOUT / 2),
            #[cfg(feature = "postgres")]
            Self::Count => Some(COUNT_TIMEOUT.max(call_timeout)),
        }
    }

    /// Returns `true` if a request is repeated that the server rejects.
    fn is_patient(self) -> bool {
        match self {
            Self::Caller => false,
            #[cfg(feature = "postgres")]
            Self::Count => false,
            _ => true,
        }
    }
}

/// The waits between the attempts of a request, each twice as long as the one before.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Self {
        Self(MIN_PAUSE)
    }

    /// Waits before the next attempt.
    pub(crate) async fn wait(&mut self, host: &impl Host) {
        host.sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_PAUSE);
    }
}

/// How long a caller waits for a reply, and the last reason why there is none. Clones share the
/// reason.
#[derive(Clone, Debug)]
pub(crate) struct Limit(Option<Arc<Waiting>>);

#[derive(Debug)]
struct Waiting {
    deadline: Instant,
    reason: Mutex<String>,
}

impl Limit {
    /// Returns a limit that begins now. A caller without a longest wait never gives up.
    pub(crate) fn new(host: &impl Host, longest: Option<Duration>) -> Self {
        let waiting =
            |longest| Waiting { deadline: host.now() + longest, reason: Mutex::default() };
        Self(longest.map(|longest| Arc::new(waiting(longest))))
    }

    /// Returns `true` if the caller never gives up, as workers do.
    pub(crate) fn is_endless(&self) -> bool {
        self.0.is_none()
    }

    /// Returns `true` if the caller has given up by now.
    pub(crate) fn has_passed(&self, now: Instant) -> bool {
        self.0.as_ref().is_some_and(|waiting| waiting.deadline <= now)
    }

    /// Notes why there is no reply yet.
    pub(crate) fn note(&self, reason: &str) {
        if let Some(waiting) = &self.0 {
            *ignore_poison(waiting.reason.lock()) = reason.to_owned();
        }
    }

    /// Waits for a reply until the deadline. The error then has the last reason, or is `silence` if
    /// there was none.
    pub(crate) async fn within<A>(
        &self,
        host: &impl Host,
        asked: impl Future<Output = Result<A, DurableError>>,
        silence: impl FnOnce() -> DurableError,
    ) -> Result<A, DurableError> {
        let Some(Waiting { deadline, reason }) = self.0.as_deref() else { return asked.await };
        match select(pin!(asked), pin!(host.sleep_until(*deadline))).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => match std::mem::take(&mut *ignore_poison(reason.lock())) {
                reason if reason.is_empty() => Err(silence()),
                reason => Err(DurableError::Unreachable(reason)),
            },
        }
    }
}

/// Sends a request that may be repeated until it succeeds, or as long as the policy says. `ask`
/// gets the number of replies that were lost. The error is `silence` if there was neither a reply
/// nor another error.
pub(crate) async fn retry<A, F: Future<Output = Result<A, RequestError>>>(
    host: &impl Host,
    (policy, call_timeout): (RetryPolicy, Duration),
    ask: impl Fn(u32) -> F,
    silence: impl FnOnce() -> DurableError,
) -> Result<A, DurableError> {
    let limit = Limit::new(host, policy.longest(call_timeout));
    let asked = async {
        let (mut pauses, mut lost) = (Pauses::new(), 0);
        loop {
            let error = match ask(lost).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            match error.kind {
                Kind::Fatal => return Err(error.error),
                Kind::Rejected if !policy.is_patient() => return Err(error.error),
                Kind::Ambiguous => lost += 1,
                _ => {}
            }
            limit.note(&error.reason());
            pauses.wait(host).await;
        }
    };
    limit.within(host, asked, silence).await
}
