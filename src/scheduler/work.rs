//! [`Work`]: the body and the rule of a scheduled closure, and one run of it.

#![forbid(unsafe_code)]

use super::next_run::{Jitter, NextRun, Schedule};
use super::rule::{LastRun, Next, Rule};
use super::run::Run;
use super::state::Ending;
use crate::panics::drop_payload;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The behaviour of a repetition after a run that panicked.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use std::time::Duration;
/// use tourbillon::Builder;
/// use tourbillon::scheduler::{AfterPanic, Scheduler};
///
/// let scheduler = Scheduler::spawn(Builder::new().driver())?;
/// let (send, runs) = mpsc::channel();
/// let poll = scheduler.every(Duration::from_millis(1)).after_panic(AfterPanic::GoOn);
/// let mut run = 0;
/// poll.run(move || {
///     run += 1;
///     let _ = send.send(run);
///     assert!(run > 1, "the first run fails");
/// })?;
/// assert_eq!((runs.recv()?, runs.recv()?), (1, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterPanic {
    /// The repetition ends.
    #[default]
    Stop,
    /// The repetition continues, as if the run had succeeded.
    GoOn,
}

/// The body of a closure, its rule and its settings.
pub(super) struct Work {
    pub(super) body: Box<dyn FnMut(Run) + Send>,
    pub(super) rule: Box<dyn Rule>,
    pub(super) jitter: Jitter,
    pub(super) after_panic: AfterPanic,
}

/// The payload of a panic.
type Payload = Box<dyn Any + Send>;

/// The outcome of a run or of a question to the rule.
pub(super) struct RunOutcome {
    pub(super) next: Schedule,
    pub(super) ending: Ending,
    pub(super) panic: Option<Payload>,
}

impl Work {
    /// Runs the body, unless the timer was a question, and then asks the rule for the next run.
    pub(super) fn run_or_ask(
        &mut self,
        last: &mut LastRun,
        next_run: NextRun,
        deadline: Instant,
        now: impl Fn() -> Instant,
    ) -> RunOutcome {
        let mut panic = None;
        if !next_run.asks_rule {
            last.runs += 1;
            last.due = next_run.due_by_rule();
            last.moved = next_run.moved;
            last.began = now();
            last.late = last.began.saturating_duration_since(next_run.due.max(deadline));
            let run = Run::of(last, next_run);
            panic = catch_unwind(AssertUnwindSafe(|| (self.body)(run))).err();
            last.ended = now();
        }
        if panic.is_some() && self.after_panic == AfterPanic::Stop {
            return RunOutcome {
                next: Schedule::exactly(Next::End),
                ending: Ending::Panicked,
                panic,
            };
        }
        let ask = AssertUnwindSafe(|| Schedule::by_rule(&mut *self.rule, last, self.jitter));
        match catch_unwind(ask) {
            Ok(next) => RunOutcome { next, ending: Ending::Done, panic },
            Err(payload) => {
                let first = match panic {
                    Some(first) => {
                        drop_payload(payload);
                        first
                    }
                    None => payload,
                };
                let next = Schedule::exactly(Next::End);
                RunOutcome { next, ending: Ending::Panicked, panic: Some(first) }
            }
        }
    }
}
