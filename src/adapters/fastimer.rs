//! Delays on the wheel for what is written against fastimer, from version 0.10 on: a [`Timer`] is a
//! [`MakeDelay`].
//!
//! Its delays can say nothing but that they have ended. One that the wheel refuses ends early,
//! after other tasks had their turn, for the reasons that the adapter of backon tells: none hangs.

#![forbid(unsafe_code)]

use crate::future::{Sleep, Timer};
use fastimer_core::MakeDelay;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Delays are sleeps of the wheel.
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
    type Delay = Delay;

    fn delay_until(&self, at: Instant) -> Delay {
        Delay(self.sleep_until(at))
    }

    fn delay(&self, duration: Duration) -> Delay {
        Delay(self.sleep(duration))
    }
}

/// A [`Sleep`] that ends also when it is refused: when its timer was shut down, or is full.
///
/// # Examples
///
/// ```
/// use fastimer_core::MakeDelay;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::fastimer::Delay;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let hour: Delay = timer.delay(Duration::from_secs(3600));
/// timer.shutdown();
/// pollster::block_on(hour);
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug)]
#[must_use = "a delay does nothing unless it is polled"]
pub struct Delay(Sleep);

impl Future for Delay {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(drop)
    }
}
