//! [`Timer`] as a [`Sleeper`] of backon, for the delays between retries.
//!
//! The future of a sleeper cannot report an error. If the wheel refuses a delay, the future can
//! only end early or never end. It ends early, because a future that never ends would block
//! everything that waits for the retries, such as a server that is shutting down. Retries without
//! delays end after as many attempts as the backoff allows. Those of an unlimited backoff do not
//! end, and if each attempt fails at once, they would never yield their thread. A refused delay
//! therefore yields to other tasks before it ends ([`OrEnd`]). A condition or a drop ends the
//! retries.

#![forbid(unsafe_code)]

use crate::future::{OrEnd, Timer};
use ::backon::Sleeper;
use std::time::Duration;

/// Makes the delays between retries sleeps on the wheel, which end early if the wheel refuses them.
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
/// After a shutdown of the timer, unlimited retries would continue without delay. A condition ends
/// them with the timer:
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
