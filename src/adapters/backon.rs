//! Retries on the wheel: a [`Timer`] is a [`Sleeper`] of backon's.
//!
//! The future of a sleeper can say nothing but that it has ended: when the wheel refuses a delay,
//! it may end early or never. It ends early. One that never ends would hang whoever waits for the
//! retries, a server that is shutting down among them; retries without their delays are over when
//! there have been as many as the backoff has. But those of a backoff without an end are not, and
//! if what they try fails at once too, they would keep their thread to themselves: so a refused
//! delay lets other tasks have their turn before it ends, and retries can be
//! [ended](RetrySleep#retries-without-an-end) or dropped.

#![forbid(unsafe_code)]

use crate::future::{Sleep, Timer};
use ::backon::Sleeper;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Delays between retries are sleeps of the wheel.
///
/// # Examples
///
/// ```
/// use backon::{ConstantBuilder, Retryable};
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut attempts = 0;
/// let fetch = || {
///     attempts += 1;
///     let attempt = attempts;
///     async move { if attempt < 3 { Err("not yet") } else { Ok("here it is") } }
/// };
/// let backoff = ConstantBuilder::default().with_delay(Duration::from_millis(2));
/// let answer = pollster::block_on(fetch.retry(backoff).sleep(timer.clone()).into_future());
/// assert_eq!((answer, attempts), (Ok("here it is"), 3));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
impl Sleeper for Timer {
    type Sleep = RetrySleep;

    fn sleep(&self, delay: Duration) -> RetrySleep {
        RetrySleep(Timer::sleep(self, delay))
    }
}

/// The delay before a retry: a [`Sleep`] that ends also when it is refused, after other tasks had
/// their turn.
///
/// # Retries without an end
///
/// When the timer was shut down, retries without an end would go on without delay. They end with
/// it by a condition:
///
/// ```
/// use backon::{ConstantBuilder, Retryable};
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// timer.shutdown();
/// let fetch = || async { Err::<(), _>("not yet") };
/// let endless = fetch
///     .retry(ConstantBuilder::default().without_max_times())
///     .sleep(timer.clone())
///     .when(|_| !timer.wheel().is_closed());
/// assert_eq!(pollster::block_on(endless.into_future()), Err("not yet"));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
///
/// # Examples
///
/// A delay of an hour, which ends with its timer:
///
/// ```
/// use backon::Sleeper;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::backon::RetrySleep;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let delay: RetrySleep = Sleeper::sleep(&timer, Duration::from_secs(3600));
/// timer.shutdown();
/// pollster::block_on(delay);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a sleep does nothing unless it is polled"]
pub struct RetrySleep(Sleep);

impl Future for RetrySleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}
