//! The default clock on a driver in real time, audited by readings of
//! [`Instant`](std::time::Instant) from before each insert. Its cached readings make no timer
//! early. No thread sleeps, and the test waits for the last timer.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use tourbillon::{Builder, Clock, Expired, MonotonicClock};

/// The number of timers that the test arms.
const TIMERS: u32 = 20_000;

#[test]
fn no_timer_is_early_by_the_true_time() {
    let (send, fired) = mpsc::channel();
    let handler = move |timer: Expired<(Instant, Duration)>| {
        let (before, delay) = timer.value;
        send.send((MonotonicClock.now().duration_since(before), delay)).unwrap();
    };
    let driver = Builder::new().driver().spawn(handler).unwrap();
    for number in 0..TIMERS {
        // One microsecond to 20 milliseconds, at no fixed phase of the ticks.
        let delay = Duration::from_micros(1 + u64::from(number) * 7_919 % 20_000);
        driver.wheel().insert((MonotonicClock.now(), delay), delay).unwrap();
    }
    for (took, delay) in fired.iter().take(TIMERS as usize) {
        assert!(took >= delay, "after {took:?} instead of {delay:?}");
    }
}
