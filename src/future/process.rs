//! The timer of the process.

#![forbid(unsafe_code)]

use super::timer::Timer;
use crate::Builder;
use once_cell::race::OnceBox;

static OF_THE_PROCESS: Link = Link { timer: OnceBox::new(), next: OnceBox::new() };

/// A timer of the process, and the one that takes its place when it is closed: because its owner
/// has shut it down, or because this process was forked and has none of its parent's threads.
///
/// Threads that start one at the same time do not wait for each other, because a fork may leave one
/// of them behind. The first that has started a timer sets it, and the others drop theirs.
#[derive(Default)]
struct Link {
    timer: OnceBox<Timer>,
    next: OnceBox<Link>,
}

pub(super) fn of_the_process() -> &'static Timer {
    let mut link = &OF_THE_PROCESS;
    loop {
        let timer = link.timer.get_or_init(|| Box::new(spawn()));
        if !timer.wheel().is_closed() {
            return timer;
        }
        link = link.next.get_or_init(Box::default);
    }
}

#[allow(clippy::expect_used, reason = "documented")]
fn spawn() -> Timer {
    let driver = Builder::new().driver().thread_name("tourbillon");
    Timer::spawn(driver).expect("the system starts a driver")
}

/// Makes a timer that of the process, before it is first used: for another resolution, a capacity,
/// or a runtime that [drives](fn@super::drive) it.
///
/// The caller may keep a handle and [end](Timer::shutdown) the timer with it. The process then uses
/// a new timer, as if none had been set.
///
/// # Errors
///
/// There is one already; `timer` comes back.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::future::{Timer, default_timer, set_default_timer};
///
/// let coarse = Builder::new().resolution(Duration::from_millis(10));
/// set_default_timer(Timer::spawn(coarse.driver())?).unwrap();
/// assert_eq!(default_timer().wheel().resolution(), Duration::from_millis(10));
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
pub fn set_default_timer(timer: Timer) -> Result<(), Timer> {
    OF_THE_PROCESS.timer.set(Box::new(timer)).map_err(|timer| *timer)
}
