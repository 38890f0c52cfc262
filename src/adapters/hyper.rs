//! [`Timer`] as the timer of hyper, for the timeouts of its connections and of hyper-util's pools.
//!
//! Hyper keeps a boxed sleep for each connection, polls it together with the connection and resets
//! it often. A [`Timer`] makes it from a [`Sleep`], which a reset moves in place.
//!
//! **A refused sleep ends at once.** A sleep can tell hyper only that it has ended, and not why. If
//! the timer was shut down or is full, the sleep ends at once, so that the connection is closed and
//! nothing waits forever. Two things keep this from spinning a task that checks repeatedly if time
//! has passed, such as a pool that looks for idle connections. The clock of a timer that was shut
//! down is beyond the end of all timeouts, so that each of them has expired. And a refused sleep,
//! like every [`Sleep`], yields once before it ends, so that it never occupies a runtime's thread.

#![forbid(unsafe_code)]

use crate::future::grace::Grace;
use crate::future::{Sleep, Timer};
use ::hyper::rt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The leap of the clock at the shutdown of the timer. 2^32 s, 136 years, is the longest delay.
const END: Duration = Duration::from_secs(1 << 32);

/// The argument of `.timer(…)` of the builders of hyper and hyper-util, and of `.pool_timer(…)` of
/// hyper-util's client. Needs the feature `hyper`.
///
/// A sleep costs one allocation, as the trait requires. A reset allocates nothing. (Hyper creates a
/// sleep for each head that it reads.) Clone the timer for each connection or thread, because the
/// sleeps of one clone share a counter.
///
/// After a shutdown of the timer, each sleep ends, new ones at once, and [`now`](rt::Timer::now) is
/// 136 years later. Hyper then closes the connections whose heads or pings it waits for, and a pool
/// drops idle connections. A full timer closes the connections that it has no room for.
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

    /// Returns the time of the timer's clock plus its lag, so that a deadline counted from it is
    /// never early.
    fn now(&self) -> Instant {
        let clock = self.wheel().clock();
        let now = clock.now();
        let ahead = if self.wheel().is_closed() { END } else { clock.lag() };
        now.checked_add(ahead).unwrap_or(now)
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(own) => own.get_mut().sleep.reset(new_deadline),
            // The sleep of another timer. The next poll finds this timer's sleep in its place.
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
