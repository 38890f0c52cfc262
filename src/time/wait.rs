//! [`Wait`]: the wait for a deadline that sleeps, timeouts, intervals and queues are made of.

#![forbid(unsafe_code)]

#[cfg(feature = "testing")]
use super::paused::RuntimeTimer;
use crate::future::{Sleep, own_timer_of_thread};
use crate::{Refusal, WheelInstant};
use ::tokio::task::coop;
use ::tokio::time::Instant;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The longest delay of a sleep and the longest period of an interval, about 30 years. A later
/// deadline overflows the clocks of some systems.
pub(super) const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A wait for a deadline, which cannot fail.
///
/// The deadline is rounded up to a tick before it is compared with the clock, so a wait without a
/// delay is pending until the next tick.
pub(super) struct Wait {
    sleep: Sleep,
    deadline: GivenDeadline,
    /// Set once the wait was polled or reset. Before that it has not elapsed.
    registered: bool,
    /// The timer of the runtime, if its clock is not the system's. Dropped after the sleep, so that
    /// the task that sweeps finds it cancelled.
    #[cfg(feature = "testing")]
    runtime: Option<RuntimeTimer>,
}

/// A deadline before it was rounded.
#[derive(Clone, Copy)]
enum GivenDeadline {
    /// Counted from now, on the timeline of the wheel.
    Counted(WheelInstant),
    /// Given as an instant, which may be before the start of the wheel.
    At(Instant),
}

impl Wait {
    /// Creates a wait that ends `delay` from now.
    #[inline]
    pub(super) fn after(delay: Duration) -> Self {
        #[cfg(feature = "testing")]
        if let Some(runtime) = RuntimeTimer::current() {
            let now = Instant::now();
            return Self::on(runtime, now.checked_add(delay).unwrap_or(now + FAR));
        }
        let timer = own_timer_of_thread();
        let deadline = timer.wheel().wheel_instant_after(delay);
        Self {
            sleep: timer.into_sleep_to_tick(deadline),
            deadline: GivenDeadline::Counted(deadline),
            registered: false,
            #[cfg(feature = "testing")]
            runtime: None,
        }
    }

    /// Creates a wait that ends at `deadline`.
    pub(super) fn until(deadline: Instant) -> Self {
        #[cfg(feature = "testing")]
        if let Some(runtime) = RuntimeTimer::current() {
            return Self::on(runtime, deadline);
        }
        let timer = own_timer_of_thread();
        let at = timer.wheel().wheel_instant(deadline.into_std());
        Self {
            sleep: timer.into_sleep_to_tick(at),
            deadline: GivenDeadline::At(deadline),
            registered: false,
            #[cfg(feature = "testing")]
            runtime: None,
        }
    }

    #[cfg(feature = "testing")]
    fn on(runtime: RuntimeTimer, deadline: Instant) -> Self {
        let timer = runtime.timer();
        let at = timer.wheel().wheel_instant(deadline.into_std());
        Self {
            sleep: timer.into_sleep_to_tick(at),
            deadline: GivenDeadline::At(deadline),
            registered: false,
            runtime: Some(runtime),
        }
    }

    /// Returns the deadline, as it was given.
    pub(super) fn deadline(&self) -> Instant {
        match self.deadline {
            GivenDeadline::Counted(at) => self.sleep.timer().wheel().instant(at).into(),
            GivenDeadline::At(deadline) => deadline,
        }
    }

    /// Returns `true` if the wait was polled or reset, and the next poll completes it.
    pub(super) fn is_elapsed(&self) -> bool {
        self.registered && self.sleep.is_ready()
    }

    /// Returns the sleep, for the grace of a timeout.
    pub(super) fn sleep(&self) -> &Sleep {
        &self.sleep
    }

    /// Sets the deadline. A task that waits is woken at the new one.
    pub(super) fn reset(&mut self, deadline: Instant) {
        self.follow_runtime();
        self.registered = true;
        self.deadline = GivenDeadline::At(deadline);
        let at = self.sleep.timer().wheel().wheel_instant(deadline.into_std());
        self.sleep.reset_to_tick(at);
    }

    /// Polls the wait, and charges its end to the budget of the task.
    ///
    /// tokio charges first and restores the budget if the sleep is pending. Without a budget, a
    /// sleep that has not elapsed is armed here, and there the task is polled again at once.
    #[inline]
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_uncharged(context));
        poll_budget(context)
    }

    /// Polls the wait without regard to the budget of the task.
    #[inline]
    pub(super) fn poll_uncharged(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.follow_runtime();
        self.registered = true;
        match ready!(self.poll_sleep(context)) {
            Ok(()) => Poll::Ready(()),
            Err(refusal) => self.poll_on_another(refusal, context),
        }
    }

    #[inline]
    fn poll_sleep(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Refusal>> {
        #[cfg(feature = "testing")]
        if self.runtime.is_some() {
            // The task that sweeps runs one turn of the runtime after the clock has moved.
            return self.sleep.poll_by_clock(context);
        }
        Pin::new(&mut self.sleep).poll(context)
    }

    /// Polls a wait again whose timer has refused it.
    #[cold]
    fn poll_on_another(&mut self, refusal: Refusal, context: &mut Context<'_>) -> Poll<()> {
        match refusal {
            // The timer has ended with the runtime whose clock it follows, or this is a forked
            // child, in which it has no thread.
            Refusal::Closed => {
                *self = Self::until(self.deadline());
                self.poll_uncharged(context)
            }
            // The timer has no capacity, and hops to a deadline beyond its range.
            _ => std::alloc::handle_alloc_error(std::alloc::Layout::new::<Self>()),
        }
    }

    /// Moves the wait to the timer of the runtime, if a test has paused the clock since.
    #[cfg(feature = "testing")]
    fn follow_runtime(&mut self) {
        if self.runtime.is_none() {
            if let Some(runtime) = RuntimeTimer::current() {
                *self = Self { registered: self.registered, ..Self::on(runtime, self.deadline()) };
            }
        }
    }

    #[cfg(not(feature = "testing"))]
    fn follow_runtime(&self) {}
}

/// Charges a result to the budget of the task. If the budget is spent, the task yields, and polls
/// for the same result again.
#[inline]
pub(super) fn poll_budget(context: &mut Context<'_>) -> Poll<()> {
    coop::poll_proceed(context).map(|charge| charge.made_progress())
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}
