//! [`Sleep`]: a future that completes at a deadline.

#![forbid(unsafe_code)]

use super::wait::{FAR, Wait};
use ::tokio::time::Instant;
use pin_project_lite::pin_project;
use std::fmt;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Creates a sleep that completes at `deadline`.
///
/// The deadline is rounded up to a tick of 1 ms. A sleep whose deadline has passed is ready at the
/// first poll. Dropping the sleep cancels it.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, Instant, sleep_until};
///
/// # pollster::block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// sleep_until(deadline).await;
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { wait: Wait::until(deadline), _pinned: PhantomPinned }
}

/// Creates a sleep that completes when `duration` has passed.
///
/// The deadline is rounded up to a tick of 1 ms, so a sleep without a duration completes at the
/// next tick. A duration of more than about 30 years is clamped to that. Dropping the sleep cancels
/// it. Creating, polling and dropping a sleep costs O(1), takes no lock and, after warm-up, no
/// allocation.
///
/// # Examples
///
/// ```
/// use tourbillon::time::{Duration, sleep};
///
/// # pollster::block_on(async {
/// sleep(Duration::from_millis(5)).await;
/// println!("5 ms have elapsed");
/// # });
/// ```
#[inline]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { wait: Wait::after(duration.min(FAR)), _pinned: PhantomPinned }
}

pin_project! {
    /// A future that completes at a deadline; created by [`sleep`] and [`sleep_until`].
    ///
    /// It is not `Unpin`. To poll it more than once, as in a `select!` within a loop, pin it by
    /// [`pin!`](std::pin::pin) or [`Box::pin`]. A sleep that has completed is ready at each further
    /// poll.
    ///
    /// # Examples
    ///
    /// An idle timeout that each packet restarts:
    ///
    /// ```
    /// use std::pin::pin;
    /// use tourbillon::time::{Duration, Instant, sleep};
    ///
    /// # pollster::block_on(async {
    /// let mut idle = pin!(sleep(Duration::from_secs(30)));
    /// for _packet in 0..3 {
    ///     idle.as_mut().reset(Instant::now() + Duration::from_millis(5));
    /// }
    /// idle.await;
    /// # });
    /// ```
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Sleep {
        wait: Wait,
        #[pin]
        _pinned: PhantomPinned,
    }
}

impl Sleep {
    /// Returns the deadline, before it was rounded.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon::time::{Duration, Instant, sleep_until};
    ///
    /// let deadline = Instant::now() + Duration::from_nanos(1);
    /// assert_eq!(sleep_until(deadline).deadline(), deadline);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.wait.deadline()
    }

    /// Returns `true` if the sleep has elapsed.
    ///
    /// A sleep that was neither polled nor [reset](Self::reset) has not elapsed, whatever its
    /// deadline.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    /// use tourbillon::time::{Duration, sleep};
    ///
    /// # pollster::block_on(async {
    /// let mut pause = pin!(sleep(Duration::from_millis(5)));
    /// assert!(!pause.is_elapsed());
    /// pause.as_mut().await;
    /// assert!(pause.is_elapsed());
    /// # });
    /// ```
    pub fn is_elapsed(&self) -> bool {
        self.wait.is_elapsed()
    }

    /// Sets the deadline, earlier or later. O(1), lock-free.
    ///
    /// A sleep that has completed can be reset too. A task that waits for the sleep is woken at the
    /// new deadline. If that has passed, the next poll is ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    /// use tourbillon::time::{Duration, Instant, sleep};
    ///
    /// # pollster::block_on(async {
    /// let mut pause = pin!(sleep(Duration::from_secs(3600)));
    /// pause.as_mut().reset(Instant::now() + Duration::from_millis(5));
    /// pause.await;
    /// # });
    /// ```
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.project().wait.reset(deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.project().wait.poll(context)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}
