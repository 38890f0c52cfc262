//! [`Timer`] as a [`MakeDelay`] of fastimer, from version 0.10.
//!
//! The delays of fastimer cannot report an error. A delay that the wheel refuses ends early
//! ([`OrEnd`]), for the reasons given in the backon adapter.

#![forbid(unsafe_code)]

use crate::future::{OrEnd, Timer};
use fastimer_core::MakeDelay;
use std::time::{Duration, Instant};

/// Makes delays sleeps on the wheel, which end early if the wheel refuses them.
///
/// # Examples
///
/// ```
/// use fastimer_core::MakeDelay;
/// use std::time::{Duration, Instant};
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// async fn pause(time: impl MakeDelay) {
///     time.delay(Duration::from_millis(5)).await;
/// }
///
/// let (timer, start) = (Timer::spawn(Builder::new().driver())?, Instant::now());
/// pollster::block_on(pause(timer));
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
impl MakeDelay for Timer {
    type Delay = OrEnd;

    fn delay_until(&self, at: Instant) -> OrEnd {
        self.sleep_until(at).or_end()
    }

    fn delay(&self, duration: Duration) -> OrEnd {
        self.sleep(duration).or_end()
    }
}
