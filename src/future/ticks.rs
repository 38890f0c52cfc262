//! [`Ticks`]: ticks by a rule.

#![forbid(unsafe_code)]

use super::budget::Budget;
use super::repeating::Repeating;
use super::timer::Timer;
use crate::Refusal;
use crate::scheduler::{Jitter, LastRun, Next, Rule};
use futures_core::Stream;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

/// Ticks by a [`Rule`], such as a `Calendar`; made by
/// [`Timer::ticks`].
///
/// The rule is asked when a tick is awaited. So what a task does between two of them is the run
/// that the rule knows of: it has begun with the tick and has ended when the next is awaited, and
/// runs never overlap. After 64 ticks in a row other tasks have their turn.
///
/// # Examples
///
/// The pauses of a repetition that backs off, and then ends:
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
/// A task that works by a calendar:
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
    /// The rule is to be asked; whether a run ends by that.
    Ask {
        run_ended: bool,
    },
    /// The sleep ends with a tick, put off by so much. Where the rule told when that is due, this
    /// is it: the sleep's deadline may have been rounded up to the making of its timer.
    Tick {
        due: Option<Instant>,
        jittered: Duration,
    },
    /// The sleep ends with another question.
    AskAgain,
    Ended,
}

impl Timer {
    /// Ticks by `rule`, which is asked for the first one when that is awaited.
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
    /// Puts each tick off by chance, by up to `most`; what follows counts from when it was due
    /// before that. As [`Every::jitter`](crate::scheduler::Every::jitter).
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Jitter(most);
        self
    }

    /// Waits for the next tick: when it was due, by the rule; `None` once the rule says that none
    /// comes. Dropping the future loses no tick.
    ///
    /// # Errors
    ///
    /// As [`Interval::tick`](super::Interval::tick), once.
    pub async fn tick(&mut self) -> Result<Option<Instant>, Refusal> {
        poll_fn(|context| self.poll_tick(context)).await.transpose()
    }

    /// As [`tick`](Self::tick), for a future of one's own.
    ///
    /// # Errors
    ///
    /// As [`tick`](Self::tick).
    pub fn poll_tick(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Instant, Refusal>>> {
        loop {
            match self.state {
                TicksState::Ended => return Poll::Ready(None),
                TicksState::Ask { run_ended } => {
                    // A rule that wants to be asked at once, again and again, is counted too.
                    ready!(self.budget.poll_left(context.waker()));
                    self.ask(run_ended);
                }
                TicksState::Tick { .. } | TicksState::AskAgain => {
                    let polled = self.repeating.poll(context);
                    if let Err(refusal) = ready!(self.budget.counted(polled)) {
                        return Poll::Ready(Some(Err(refusal)));
                    }
                    if let Some(due) = self.begin() {
                        return Poll::Ready(Some(Ok(due)));
                    }
                }
            }
        }
    }

    /// What the wall clock says at the tick that is awaited, if the rule goes by that and has been
    /// asked: it is when the tick is first polled for. (Whoever wants to know before asks a
    /// calendar of the same expression, by its `next_after`.)
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

    /// The sleep has ended. Returns when the tick was due, if that was what it was for.
    fn begin(&mut self) -> Option<Instant> {
        let state = std::mem::replace(&mut self.state, TicksState::Ask { run_ended: false });
        let TicksState::Tick { due, jittered } = state else { return None };
        self.state = TicksState::Ask { run_ended: true };
        let deadline = self.repeating.sleep.deadline();
        let timer = self.repeating.sleep.timer();
        let due = due.or_else(|| deadline.checked_sub(jittered)).unwrap_or(deadline);
        let began = timer.now();
        // Deadlines round up to the resolution: that much is not late.
        let late = began.saturating_duration_since(deadline);
        let late = late.saturating_sub(timer.wheel().resolution());
        self.last = LastRun { runs: self.last.runs + 1, due, late, ..LastRun::none(began) };
        Some(due)
    }
}

/// Its ticks, or why there is none; it ends when the rule says so.
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
