//! The timer of the process.

#![forbid(unsafe_code)]

use super::timer::Timer;
use crate::Builder;
use std::sync::OnceLock;

static OF_THE_PROCESS: OnceLock<Timer> = OnceLock::new();

/// In place of that one, where its owner has shut it down.
static SPARE: OnceLock<Timer> = OnceLock::new();

pub(super) fn of_the_process() -> &'static Timer {
    let timer = OF_THE_PROCESS.get_or_init(spawn);
    if timer.wheel().is_closed() { SPARE.get_or_init(spawn) } else { timer }
}

#[allow(clippy::expect_used, reason = "documented")]
fn spawn() -> Timer {
    let driver = Builder::new().driver().thread_name("tourbillon");
    Timer::spawn(driver).expect("the system starts a thread")
}

/// Makes a timer that of the process, before it is first used: for another resolution, a capacity,
/// or a runtime that [drives](fn@super::drive) it.
///
/// The caller may keep a handle, by which it can [end](Timer::shutdown) the timer; the process then
/// has another one, as if none had been set.
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
    OF_THE_PROCESS.set(timer)
}
