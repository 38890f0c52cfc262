//! [`Grace`]: the delay between an expiry and its report, while a runtime polls its sockets.
//!
//! A driver's thread wakes a task at its deadline, whatever the runtime does at that time. A thread
//! of the runtime that was held up by another task then polls the woken task before it collects the
//! events of its sockets, and an idle thread may do the same while no thread waits for events. The
//! socket reports that it has nothing, although the kernel received the bytes before the deadline.
//!
//! Runtimes with timers of their own collect the events first, and so does a timer that is swept by
//! a future ([`drive`](fn@super::drive)). They do so only while the process runs, though. A process
//! that was stopped, frozen or out of its share of CPU time returns from its wait without events,
//! and then sweeps timers whose deadlines have long passed.
//!
//! A limit therefore reports an expiry only after another short sleep if a thread of the timer has
//! woken its task, or if the expiry is noticed late. Meanwhile the runtime either has no task to
//! run and waits for events, or has many and collects events between them. If that sleep ends late
//! as well, the thread was held up once more, and another sleep follows. Their number is bounded,
//! and a sleep that the timer refuses delays nothing.

#![forbid(unsafe_code)]

use super::sleep::Sleep;
use super::timer::Timer;
use crate::Refusal;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The length of a sleep, which is rounded up to a tick of at most a millisecond if a thread wakes
/// the task. A runtime collects its events within microseconds.
const TURN: Duration = Duration::from_micros(500);

/// The maximum number of sleeps before an expiry is reported. Each of them lasts at least until the
/// thread that is held up has finished a task. tokio collects events after 61 tasks, and runs a
/// task that another thread has woken at least after each 31.
const TURNS: u8 = 3;

/// The maximum delay of a sleep after its tick, on a thread that was not held up.
const PUNCTUAL: Duration = Duration::from_millis(1);

/// Polls the [`Sleep`] of a limit, and delays its end until the runtime has polled its sockets.
///
/// A limit first polls the operation that it limits. If that is pending, it polls the grace in
/// place of its sleep. There is one grace for each sleep, through all resets.
#[derive(Debug, Default)]
pub(crate) struct Grace(GraceState);

#[derive(Debug, Default)]
enum GraceState {
    /// The limit's sleep was not polled yet.
    #[default]
    New,
    /// The limit's sleep was pending.
    Waiting,
    /// The limit's sleep has ended. The end of another sleep reports this.
    Delaying { until: Box<Sleep>, left: u8 },
    /// The end of the limit's sleep was reported.
    Over,
}

impl Grace {
    /// Polls the sleep of a limit. Returns its error at once, and its end after the runtime has
    /// polled its sockets.
    ///
    /// The end is not delayed by a clock that does not run by itself. Otherwise it is delayed if it
    /// is noticed late, or if the timer has a driver and an earlier poll was pending.
    pub(crate) fn poll(
        &mut self,
        limit: &mut Sleep,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        let polled = Pin::new(&mut *limit).poll(context);
        self.delay(polled, limit, context)
    }

    /// Delays the outcome of a poll of the limit's sleep. See [`poll`](Self::poll).
    pub(crate) fn delay(
        &mut self,
        polled: Poll<Result<(), Refusal>>,
        limit: &Sleep,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        match polled {
            Poll::Pending => self.0 = GraceState::Waiting,
            Poll::Ready(Ok(())) => ready!(self.poll_delay(limit, context)),
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    /// Returns `true` while the end of the limit's sleep is delayed. An operation that is polled
    /// after the delay may then be done once more, because the runtime polls its sockets and wakes
    /// a task for both before the task is polled.
    #[cfg(any(feature = "http", feature = "io"))]
    pub(crate) fn is_delaying(&self) -> bool {
        matches!(self.0, GraceState::Delaying { .. })
    }

    #[cold]
    fn poll_delay(&mut self, limit: &Sleep, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let timer = limit.timer();
            let left = match &mut self.0 {
                GraceState::Waiting if timer.has_thread() => TURNS,
                GraceState::New | GraceState::Waiting if is_late(limit) => TURNS,
                GraceState::New | GraceState::Waiting | GraceState::Over => 0,
                GraceState::Delaying { until, left } => {
                    let ended = ready!(until.poll_by_clock(context));
                    if ended.is_ok() && is_late(until) { *left } else { 0 }
                }
            };
            if left == 0 || !timer.wheel().clock().is_running() {
                self.0 = GraceState::Over;
                return Poll::Ready(());
            }
            self.0 = GraceState::Delaying { until: Box::new(turn(timer)), left: left - 1 };
        }
    }
}

/// Starts a sleep of a turn.
///
/// If the timer has a thread but long ticks, the sleep is on another timer, because a turn that is
/// rounded up to a tick would double the lateness of a limit. A timer without a thread keeps the
/// sleep, because its user wants no thread.
fn turn(timer: &Timer) -> Sleep {
    #[cfg(not(modelled))]
    if timer.has_thread() && timer.wheel().resolution() > PUNCTUAL {
        return super::process::own_timer().unwrap_or(timer).sleep(TURN);
    }
    timer.sleep(TURN)
}

/// Returns `true` if a sleep that has ended was polled so late that its thread was held up.
fn is_late(sleep: &Sleep) -> bool {
    let timer = sleep.timer();
    let late = timer.now().saturating_duration_since(sleep.deadline());
    late > timer.wheel().resolution() + PUNCTUAL
}
