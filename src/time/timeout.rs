//! [`Timeout`]: a future with a time limit.

#![forbid(unsafe_code)]

use super::error::Elapsed;
use super::wait::{Wait, poll_budget};
use crate::future::grace::Grace;
use ::tokio::task::coop;
use ::tokio::time::Instant;
use pin_project_lite::pin_project;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Limits a future to `duration` from now.
///
/// The future is polled before the limit is checked, so a future that is ready at once succeeds
/// even if `duration` is zero. The limit is rounded up to a tick of 1 ms. Dropping the timeout
/// cancels both.
///
/// # Errors
///
/// The output is [`Elapsed`] if the future has not completed in time.
///
/// # Examples
///
/// ```
/// use std::future::pending;
/// use tourbillon::time::{Duration, timeout};
///
/// # pollster::block_on(async {
/// assert_eq!(timeout(Duration::ZERO, async { 42 }).await, Ok(42));
/// if timeout(Duration::from_millis(5), pending::<()>()).await.is_err() {
///     println!("no value within 5 ms");
/// }
/// # });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), Wait::after(duration))
}

/// Limits a future to `deadline`, like [`timeout`].
///
/// # Errors
///
/// The output is [`Elapsed`] if the future has not completed in time.
///
/// # Examples
///
/// Two steps that share one deadline:
///
/// ```
/// use std::future::pending;
/// use tourbillon::time::{Duration, Instant, timeout_at};
///
/// # pollster::block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// assert_eq!(timeout_at(deadline, async { "connected" }).await, Ok("connected"));
/// assert!(timeout_at(deadline, pending::<()>()).await.is_err());
/// # });
/// ```
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), Wait::until(deadline))
}

pin_project! {
    /// A future with a time limit; created by [`timeout`] and [`timeout_at`].
    ///
    /// A timeout that has waited reports its expiry a millisecond or two after it has noticed it,
    /// and polls the future once more before that. Data that the system received before the
    /// deadline is therefore returned even if another task blocked the runtime's thread meanwhile.
    /// Under a paused clock there is no such delay.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    /// use tourbillon::time::{Duration, timeout};
    ///
    /// # pollster::block_on(async {
    /// let mut limited = pin!(timeout(Duration::from_millis(5), std::future::pending::<()>()));
    /// assert!(limited.as_mut().await.is_err());
    /// # });
    /// ```
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    #[derive(Debug)]
    pub struct Timeout<T> {
        #[pin]
        value: T,
        wait: Wait,
        grace: Grace,
    }
}

impl<T> Timeout<T> {
    fn new(value: T, wait: Wait) -> Self {
        Self { value, wait, grace: Grace::default() }
    }

    /// Returns a reference to the inner future.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// Returns a mutable reference to the inner future.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the inner future, without the limit.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T: Future> Future for Timeout<T> {
    type Output = Result<T::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let had_budget = coop::has_budget_remaining();
        if let Poll::Ready(value) = this.value.poll(context) {
            return Poll::Ready(Ok(value));
        }
        let waited = this.wait.poll_uncharged(context).map(Ok);
        // A wait has no error.
        let _ended = ready!(this.grace.delay(waited, this.wait.sleep(), context));
        // A future that always spends the budget must not keep its timeout from ending.
        if !had_budget || coop::has_budget_remaining() {
            ready!(poll_budget(context));
        }
        Poll::Ready(Err(Elapsed::new()))
    }
}
