//! Retries on the wheel: a [`Timer`] is a [`Sleeper`] of backon's.
//!
//! The future of a sleeper can say nothing but that it has ended: when the wheel refuses a delay,
//! it may end early or never. It ends early. One that never ends would hang whoever waits for the
//! retries, a server that is shutting down among them; retries without their delays are over when
//! there have been as many as the backoff has. But those of a backoff without an end are not, and
//! if what they try fails at once too, they would keep their thread to themselves: so a refused
//! delay lets other tasks have their turn before it ends ([`OrEnd`]), and retries can be ended by a
//! condition or dropped.

#![forbid(unsafe_code)]

use crate::future::{OrEnd, Timer};
use ::backon::Sleeper;
use std::time::Duration;

/// Delays between retries are sleeps of the wheel, which end early if the wheel refuses them.
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
impl Sleeper for Timer {
    type Sleep = OrEnd;

    fn sleep(&self, delay: Duration) -> OrEnd {
        Timer::sleep(self, delay).or_end()
    }
}
