//! [`Ticks`]: ticks at the times of a rule.

#![forbid(unsafe_code)]

use super::budget::Budget;
use super::repeating::Repeating;
use super::timer::Timer;
use crate::scheduler::{LastRun, Next, Rule};
use crate::{Jitter, Refusal};
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

/// A sequence of ticks at the times of a [`Rule`], such as a `Calendar`; created by
/// [`Timer::ticks`].
///
/// The rule is asked when a tick is awaited. For the rule, a run is therefore the work of a task
/// between two ticks. It has begun with the tick and has ended when the next tick is awaited, so
/// runs never overlap. After 64 ticks in a row other tasks have a turn.
///
/// # Examples
///
/// The pauses of a repetition that backs off and then ends:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut pauses = [1, 2, 4].into_iter();
/// let backing_off = move |last: Instant| Some(last + Duration::from_millis(pauses.next()?));
/// let mut ticks = timer.ticks(backing_off);
/// let attempts = pollster::block_on(async {
///     let mut attempts = 0;
///     while let Some(_due) = ticks.tick().await? {
///         attempts += 1;
///     }
///     Ok::<u32, Box<dyn std::error::Error>>(attempts)
/// });
/// assert_eq!(attempts?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A task that runs at the times of a calendar:
///
/// ```no_run
/// # #[cfg(feature = "cron")]
/// # async fn nightly() -> Result<(), Box<dyn std::error::Error>> {
/// use tourbillon::Builder;
/// use tourbillon::future::Timer;
/// use tourbillon::scheduler::Calendar;
///
/// let timer = Timer::spawn(Builder::new().driver())?;
/// let mut ticks = timer.ticks(Calendar::new("30 2 * * *", "Europe/Berlin")?);
/// while let Some(_due) = ticks.tick().await? {
///     println!("good night");
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "ticks do nothing unless they are polled"]
pub struct Ticks<R> {
    repeating: Repeating,
    rule: R,
    jitter: Jitter,
    last: LastRun,
    state: TicksState,
    budget: Budget,
}

#[derive(Clone, Copy, Debug)]
enum TicksState {
    /// The rule is to be asked. If `run_ended` is set, a run has ended by that.
    Ask {
        run_ended: bool,
    },
    /// The sleep ends with a tick, delayed by `jittered`. If the rule returned an instant, `due` is
    /// that instant, because the sleep's deadline may have been rounded up to the creation of its
    /// timer.
    Tick {
        due: Option<Instant>,
        jittered: Duration,
    },
    /// After the sleep the rule is to be asked again.
    AskAgain,
    Ended,
}

impl Timer {
    /// Creates a sequence of ticks at the times of `rule`. The rule is asked when the first tick is
    /// awaited.
    pub fn ticks<R: Rule>(&self, rule: R) -> Ticks<R> {
        Ticks {
            repeating: Repeating::new(self.sleep(Duration::ZERO)),
            rule,
            jitter: Jitter::default(),
            last: LastRun::none(self.now()),
            state: TicksState::Ask { run_ended: false },
            budget: Budget::default(),
        }
    }
}

impl<R: Rule> Ticks<R> {
    /// Delays each tick by a [`Jitter`]. A duration stands for a random jitter of up to that. The
    /// times that follow count from the tick without its delay. See
    /// [`By::jitter`](crate::scheduler::By::jitter).
    pub fn jitter(mut self, jitter: impl Into<Jitter>) -> Self {
        self.jitter = jitter.into();
        self
    }

    /// Waits for the next tick and returns when it was due by the rule. Returns `None` once the
    /// rule has ended. Dropping the future loses no tick.
    ///
    /// # Errors
    ///
    /// Fails like [`Interval::tick`](super::Interval::tick), once.
    pub async fn tick(&mut self) -> Result<Option<Instant>, Refusal> {
        poll_fn(|context| self.poll_tick(context)).await.transpose()
    }

    /// Polls for the next tick, like [`tick`](Self::tick), for use in a hand-written future.
    ///
    /// # Errors
    ///
    /// Fails like [`tick`](Self::tick).
    pub fn poll_tick(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Instant, Refusal>>> {
        loop {
            match self.state {
                TicksState::Ended => return Poll::Ready(None),
                TicksState::Ask { run_ended } => {
                    // A rule that wants to be asked again at once, repeatedly, counts too.
                    ready!(self.budget.poll_ready(context.waker()));
                    self.ask(run_ended);
                }
                TicksState::Tick { .. } | TicksState::AskAgain => {
                    let polled = self.repeating.poll(context);
                    if let Err(refusal) = ready!(self.budget.count(polled)) {
                        return Poll::Ready(Some(Err(refusal)));
                    }
                    if let Some(due) = self.end_sleep() {
                        return Poll::Ready(Some(Ok(due)));
                    }
                }
            }
        }
    }

    /// Returns the wall-clock time of the awaited tick, if the rule has one and has been asked.
    ///
    /// The rule is asked by the first poll for the tick. To know the time before that, call
    /// `next_after` on a calendar with the same expression.
    #[must_use]
    pub fn next_time(&self) -> Option<SystemTime> {
        match self.state {
            TicksState::Tick { .. } | TicksState::AskAgain => self.rule.next_time(),
            TicksState::Ask { .. } | TicksState::Ended => None,
        }
    }

    fn ask(&mut self, run_ended: bool) {
        if run_ended {
            self.last.ended = self.repeating.sleep.timer().now();
        }
        let jittered = self.jitter.draw();
        self.state = match self.rule.next(&self.last) {
            Next::At(due) => {
                self.repeating.sleep.reset(due.checked_add(jittered).unwrap_or(due));
                TicksState::Tick { due: Some(due), jittered }
            }
            Next::After(delay) => {
                self.repeating.sleep.reset_after(delay.saturating_add(jittered));
                TicksState::Tick { due: None, jittered }
            }
            Next::AskAfter(delay) => {
                self.repeating.sleep.reset_after(delay);
                TicksState::AskAgain
            }
            Next::End => TicksState::Ended,
        };
    }

    /// Sets the state after the sleep has ended. Returns when the tick was due and records it as a
    /// run, or returns `None` if the rule is to be asked again.
    fn end_sleep(&mut self) -> Option<Instant> {
        let state = std::mem::replace(&mut self.state, TicksState::Ask { run_ended: false });
        let TicksState::Tick { due, jittered } = state else { return None };
        self.state = TicksState::Ask { run_ended: true };
        let deadline = self.repeating.sleep.deadline();
        let timer = self.repeating.sleep.timer();
        let due = due.or_else(|| deadline.checked_sub(jittered)).unwrap_or(deadline);
        let began = timer.now();
        // Deadlines are rounded up to the resolution. A tick is not late by that much.
        let late = began.saturating_duration_since(deadline);
        let late = late.saturating_sub(timer.wheel().resolution());
        self.last = LastRun { runs: self.last.runs + 1, due, late, ..LastRun::none(began) };
        Some(due)
    }
}

/// Yields the ticks and errors of [`tick`](Ticks::tick). The stream ends when the rule ends.
impl<R: Rule + Unpin> Stream for Ticks<R> {
    type Item = Result<Instant, Refusal>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_tick(context)
    }
}

impl<R> fmt::Debug for Ticks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticks").field("last", &self.last).finish_non_exhaustive()
    }
}
