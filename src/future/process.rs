//! The timers of the process.

#![forbid(unsafe_code)]

use super::timer::Timer;
use crate::sync::Process;
use crate::{BuildError, Builder};
use once_cell::race::OnceBox;
#[cfg(feature = "time")]
use std::cell::OnceCell;

static PROCESS_TIMER: ProcessTimer = ProcessTimer::new();

/// The [timer of this crate](own_timer). Its settings are the defaults.
static OWN_TIMER: ProcessTimer = ProcessTimer::new();

/// A timer of the process, and its successor.
///
/// The successor is used if the owner of the timer has shut it down, or if this process was forked
/// and has none of the threads that sweep it. Threads that start a timer at the same time do not
/// wait for each other, because a fork may leave one of them behind. The first that has started a
/// timer sets it, and the others drop theirs.
struct ProcessTimer {
    timer: OnceBox<Candidate>,
    next: OnceBox<ProcessTimer>,
}

/// A candidate for the default timer.
pub(super) struct Candidate {
    pub(super) timer: Timer,
    /// The only process that can use the timer, or `None` if all can.
    only_in: Option<Process>,
}

impl Candidate {
    /// Creates a candidate for this process and not for its children, if the system can tell them
    /// apart.
    pub(super) fn for_this_process(timer: Timer) -> Self {
        Self { timer, only_in: Process::current().ok() }
    }

    /// Creates a candidate for children as well, where the thread that forked may sweep the timer.
    pub(super) fn for_any_process(timer: Timer) -> Self {
        Self { timer, only_in: None }
    }

    pub(super) fn is_usable(&self) -> bool {
        self.only_in.is_none_or(Process::is_current) && !self.timer.wheel().is_closed()
    }
}

impl ProcessTimer {
    const fn new() -> Self {
        Self { timer: OnceBox::new(), next: OnceBox::new() }
    }

    /// Returns the first usable timer, and starts one if there is none.
    ///
    /// # Errors
    ///
    /// Fails if a driver cannot be started and no other thread has started one.
    fn get_or_start(&'static self) -> Result<&'static Timer, BuildError> {
        let mut current = self;
        loop {
            let candidate = current.candidate_or_start()?;
            if candidate.is_usable() {
                return Ok(&candidate.timer);
            }
            current = current.next.get_or_init(|| Box::new(Self::new()));
        }
    }

    /// Returns the timer that was set here, usable or not, and starts one if there is none.
    fn candidate_or_start(&self) -> Result<&Candidate, BuildError> {
        if let Some(set) = self.timer.get() {
            return Ok(set);
        }
        match start() {
            Ok(timer) => {
                Ok(self.timer.get_or_init(|| Box::new(Candidate::for_this_process(timer))))
            }
            // Another thread may have set its timer meanwhile. The process then has that timer,
            // although this thread could start none.
            Err(error) => self.timer.get().ok_or(error),
        }
    }
}

/// Returns the timer of the process.
///
/// # Panics
///
/// Panics if there is none and no driver can be started.
#[allow(clippy::expect_used, reason = "documented")]
pub(super) fn process_timer() -> &'static Timer {
    PROCESS_TIMER.get_or_start().expect("failed to start the default timer")
}

/// Returns the timer of this crate, or `None` if its thread cannot be started.
///
/// It has a thread, ticks of a millisecond and no capacity, and no caller can configure or end it.
pub(super) fn own_timer() -> Option<&'static Timer> {
    OWN_TIMER.get_or_start().ok()
}

/// Returns the calling thread's clone of the [timer of this crate](own_timer). Threads therefore
/// share no counter of sleeps.
///
/// # Panics
///
/// Panics if the thread of the timer cannot be started.
#[cfg(feature = "time")]
#[inline]
pub(crate) fn own_timer_of_thread() -> Timer {
    let clone = OWN_CLONE.try_with(|clone| {
        let (process, timer) = clone.get()?;
        process.is_current().then(|| timer.share())
    });
    // A thread that is being torn down has none.
    clone.ok().flatten().unwrap_or_else(clone_own_timer)
}

#[cfg(feature = "time")]
thread_local! {
    /// The thread's clone, and the only process that can use it.
    static OWN_CLONE: OnceCell<(Process, Timer)> = const { OnceCell::new() };
}

/// Returns the timer, and stores a clone for the thread, unless the thread has its parent's.
#[cfg(feature = "time")]
#[allow(clippy::expect_used, reason = "documented")]
#[cold]
fn clone_own_timer() -> Timer {
    let timer = own_timer().expect("failed to start the timer of `tourbillon::time`");
    if let Ok(process) = Process::current() {
        let _torn_down = OWN_CLONE.try_with(|place| drop(place.set((process, timer.clone()))));
    }
    timer.share()
}

fn start() -> Result<Timer, BuildError> {
    Timer::spawn(Builder::new().driver().thread_name("tourbillon"))
}

/// Sets the timer of the process, before its first use.
///
/// Use this for another resolution, a capacity, or a runtime that [drives](fn@super::drive) the
/// timer. The caller may keep a handle and [end](Timer::shutdown) the timer with it. The process
/// then uses a new timer, as if none had been set.
///
/// # Errors
///
/// Returns `timer` if the process has a timer already.
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
    let candidate = Box::new(Candidate::for_this_process(timer));
    PROCESS_TIMER.timer.set(candidate).map_err(|refused| refused.timer)
}
