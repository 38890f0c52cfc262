//! A [`Timer`] as hyper's own: the time-outs of its connections, and of hyper-util's pools.
//!
//! Hyper keeps a boxed sleep for each connection, polls it beside everything else and moves it
//! often: a [`Timer`] makes it of a [`Sleep`], and a reset moves that where it lies.
//!
//! **A refusal ends it.** What hyper is told by a sleep is that it has ended, and not why. One
//! that cannot be armed, because the timer was shut down or is full, ends at once: what waits for
//! it is cut, and nothing waits for ever. Two things keep that from spinning in those who ask
//! again and again whether time has passed, as a pool does that looks for idle connections. The
//! clock of a timer that was shut down stands at the end of all time-outs, so that what they find
//! has expired; and a sleep that is refused at once lets its task go before it ends, as every
//! [`Sleep`] does, so that a runtime's thread is never held.

#![forbid(unsafe_code)]

use crate::future::grace::Grace;
use crate::future::{Sleep, Timer};
use ::hyper::rt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// How far the clock leaps when the timer is shut down: 2^32 s, 136 years, the longest delay.
const END: Duration = Duration::from_secs(1 << 32);

/// For `.timer(…)` of hyper's builders and of hyper-util's, and `.pool_timer(…)` of its client;
/// with the feature `hyper`.
///
/// A sleep is one allocation, as the trait asks for; a reset of it is none. (Hyper makes a new
/// one for each head that it reads.) Clone the timer for each connection, or for each thread:
/// the sleeps of one clone share a counter.
///
/// Once the timer is shut down, each sleep ends, new ones at once, and [`now`](rt::Timer::now) is
/// 136 years later: hyper cuts the connections whose heads or pings it waits for, and a pool drops
/// those that are idle. A timer that is full cuts what it has no place for.
///
/// # Examples
///
/// ```
/// use hyper::rt::Timer as _;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// // hyper::server::conn::http1::Builder::new()
/// //     .timer(timer.clone())
/// //     .header_read_timeout(Duration::from_secs(30))
///
/// // What hyper does with it:
/// let start = hyper::rt::Timer::now(&timer);
/// let mut head = hyper::rt::Timer::sleep(&timer, Duration::from_secs(30));
/// timer.reset(&mut head, start + Duration::from_millis(5));
/// pollster::block_on(head);
/// assert!(hyper::rt::Timer::now(&timer) >= start + Duration::from_millis(5));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        HyperSleep::of(self.sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        HyperSleep::of(self.sleep_until(deadline))
    }

    /// What the timer's clock says, and as much more as it may lie behind the truth: a deadline
    /// counted from it is never early.
    fn now(&self) -> Instant {
        let clock = self.wheel().clock();
        let now = clock.now();
        let ahead = if self.wheel().is_closed() { END } else { clock.lag() };
        now.checked_add(ahead).unwrap_or(now)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(own) => own.get_mut().sleep.reset(new_deadline),
            // Another timer's: whoever polls it next finds ours in its place.
            None => *sleep = rt::Timer::sleep_until(self, new_deadline),
        }
    }
}

/// A sleep that also ends when it is refused, and that is as late as a timeout, because hyper polls
/// it after the connection whose head it limits.
struct HyperSleep {
    sleep: Sleep,
    grace: Grace,
}

impl HyperSleep {
    fn of(sleep: Sleep) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Self { sleep, grace: Grace::default() })
    }
}

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { sleep, grace } = &mut *self;
        grace.poll(sleep, context).map(drop)
    }
}

impl rt::Sleep for HyperSleep {}
