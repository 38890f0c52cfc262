//! A scheduled closure: its state, and who may change it.
//!
//! ```text
//!             arm                fire               the rule says never,
//!   (made) ────────► Armed ───────────────► Busy ─── the wheel refuses, ──► Ended
//!                     ▲ │ ▲                   │      cancelled meanwhile      ▲
//!                     │ └─┘ reschedule        │                               │
//!                     └───────────────────────┘ arm                           │
//!                     └──────────────── cancel, shutdown ─────────────────────┘
//! ```
//!
//! **One timer at a time.** An armed closure has one timer in the wheel, and its phase names it. A
//! timer that fires and is not the one named was overtaken by a handle, and does nothing. So
//! whoever changes the phase under its lock has decided, whatever the sweeper has taken.
//!
//! **One run at a time.** Whoever turns `Armed` into `Busy` runs; the next timer is armed only
//! after that. The work (body and rule) is locked by the thread that is busy, or by nobody.
//!
//! **On the way.** What is due beyond the wheel's range, or is a question to the rule and not a
//! run, is an armed timer as well, with another aim.

#![forbid(unsafe_code)]

use super::Due;
use super::rule::{LastRun, Next, Rule};
use crate::{Expired, InsertError, Refusal, TimerId, Wheel};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// What becomes of a repetition after a run that panicked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterPanic {
    /// It ends.
    #[default]
    Stop,
    /// It goes on, as if the run had ended well.
    GoOn,
}

/// Why a closure will not run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Its rule says so; a closure that was to run once has run.
    Done,
    /// A handle cancelled it.
    Cancelled,
    /// A run of a repetition panicked. (The panic of a closure that runs once is its result.)
    Panicked,
    /// The wheel refused its next timer.
    Refused(Refusal),
    /// The scheduler was shut down before its time came.
    ShutDown,
}

/// What came of cancelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancel {
    /// It does not run any more, and is not running.
    Prevented,
    /// A run is under way, and is the last.
    LastRun,
    /// It had ended before.
    Ended,
}

/// What a closure does and when.
pub(super) struct Work {
    pub(super) body: Box<dyn FnMut() + Send>,
    pub(super) rule: Box<dyn Rule>,
    pub(super) after_panic: AfterPanic,
}

/// A scheduled closure.
pub(super) struct Closure {
    repeats: bool,
    phase: Mutex<Phase>,
    work: Mutex<Option<(Work, LastRun)>>,
    /// Notified when the closure is no longer busy.
    quiet: Condvar,
}

#[derive(Clone, Copy)]
enum Phase {
    Armed(Armed),
    /// A thread has the work: it runs, or asks the rule.
    Busy {
        thread: ThreadId,
        runs: bool,
        /// What a handle wants to happen next, in place of what the rule says.
        wanted: Option<Wanted>,
    },
    Ended(Ending),
}

#[derive(Clone, Copy)]
struct Armed {
    id: TimerId,
    due: Instant,
    aim: Aim,
}

/// What the armed timer is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aim {
    Run,
    /// To arm another, nearer to what is due.
    Nearer,
    /// To ask the rule.
    Ask,
}

#[derive(Clone, Copy)]
enum Wanted {
    Next(Next),
    Cancelled,
}

/// What a panic carries.
type Payload = Box<dyn Any + Send>;

impl Closure {
    /// Arms a closure for the first time. `f` becomes its work once the wheel has accepted it, and
    /// comes back otherwise.
    pub(super) fn schedule<F>(
        wheel: &Wheel<Due>,
        (first, repeats): (Next, bool),
        f: F,
        work: impl FnOnce(F) -> Work,
    ) -> Result<Arc<Self>, InsertError<F>> {
        let closure = Arc::new(Self {
            repeats,
            phase: Mutex::new(Phase::Ended(Ending::Done)),
            work: Mutex::new(None),
            quiet: Condvar::new(),
        });
        // A timer that fires before the work is there waits for this lock.
        let mut phase = lock(&closure.phase);
        *phase = match closure.arm(wheel, first) {
            Phase::Ended(Ending::Refused(reason)) => return Err(InsertError { reason, value: f }),
            armed => armed,
        };
        let last = LastRun::none(wheel.pin().now());
        *lock(&closure.work) = Some((work(f), last));
        drop(phase);
        Ok(closure)
    }

    /// The closure's timer has fired.
    pub(super) fn fire(self: Arc<Self>, wheel: &Wheel<Due>, timer: &Expired<()>) {
        let Some(armed) = self.begin(timer.id) else { return };
        if armed.aim == Aim::Nearer {
            return self.finish(wheel, Next::At(armed.due), Ending::Done);
        }
        let (next, panic) = match &mut *lock(&self.work) {
            Some((work, last)) => work.act(last, armed, timer, wheel),
            None => (Next::End, None),
        };
        let ending = if panic.is_some() { Ending::Panicked } else { Ending::Done };
        self.finish(wheel, next, ending);
        // Reported as any panic of a handler is.
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Cancels.
    pub(super) fn cancel(&self, wheel: &Wheel<Due>) -> Cancel {
        let mut phase = lock(&self.phase);
        match &mut *phase {
            Phase::Armed(armed) => {
                // If the sweeper has taken it already, it finds the closure ended.
                let timer = wheel.cancel(armed.id);
                self.end(phase, Ending::Cancelled);
                drop(timer);
                Cancel::Prevented
            }
            Phase::Busy { wanted: Some(Wanted::Cancelled), .. } | Phase::Ended(_) => Cancel::Ended,
            Phase::Busy { runs, wanted, .. } => {
                *wanted = Some(Wanted::Cancelled);
                if *runs { Cancel::LastRun } else { Cancel::Prevented }
            }
        }
    }

    /// Lets the next run be `next`, if there is one to come. Answers whether there is.
    pub(super) fn reschedule(
        self: &Arc<Self>,
        wheel: &Wheel<Due>,
        next: Next,
    ) -> Result<bool, Refusal> {
        let mut phase = lock(&self.phase);
        match &mut *phase {
            Phase::Armed(armed) => {
                if armed.is_moved(wheel, next) {
                    return Ok(true);
                }
                let overtaken = armed.id;
                match self.arm(wheel, next) {
                    Phase::Ended(Ending::Refused(refusal)) => Err(refusal),
                    armed => {
                        *phase = armed;
                        drop(phase);
                        // Nothing is there if the sweeper has taken it already.
                        drop(wheel.cancel(overtaken));
                        Ok(true)
                    }
                }
            }
            Phase::Busy { wanted: Some(Wanted::Cancelled), .. } | Phase::Ended(_) => Ok(false),
            Phase::Busy { wanted, .. } => {
                *wanted = Some(Wanted::Next(next)).filter(|_| self.repeats);
                Ok(self.repeats)
            }
        }
    }

    /// The scheduler was shut down and has this closure's timer back. Answers the work and when it
    /// was due, if it was still to run.
    pub(super) fn shut_down(&self, id: TimerId) -> Option<(Work, Instant)> {
        let mut phase = lock(&self.phase);
        let Armed { due, .. } = phase.armed_as(id)?;
        *phase = Phase::Ended(Ending::ShutDown);
        drop(phase);
        Some((lock(&self.work).take()?.0, due))
    }

    /// When the next run is due, or the rule is asked for it.
    pub(super) fn next_run(&self) -> Option<Instant> {
        match *lock(&self.phase) {
            Phase::Armed(Armed { due, .. }) => Some(due),
            _ => None,
        }
    }

    /// Whether a run is under way.
    pub(super) fn is_running(&self) -> bool {
        matches!(*lock(&self.phase), Phase::Busy { runs: true, .. })
    }

    /// Why it does not run again, once that is so.
    pub(super) fn ending(&self) -> Option<Ending> {
        match *lock(&self.phase) {
            Phase::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Waits for the end of a run that is under way. `false`: the caller is that run.
    pub(super) fn wait(&self) -> bool {
        let mut phase = lock(&self.phase);
        while let Phase::Busy { thread, .. } = *phase {
            if thread == thread::current().id() {
                return false;
            }
            phase = self.quiet.wait(phase).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// From armed by this timer to busy.
    fn begin(&self, id: TimerId) -> Option<Armed> {
        let mut phase = lock(&self.phase);
        let armed = phase.armed_as(id)?;
        let runs = armed.aim == Aim::Run;
        *phase = Phase::Busy { thread: thread::current().id(), runs, wanted: None };
        Some(armed)
    }

    /// From busy to armed or ended.
    fn finish(self: &Arc<Self>, wheel: &Wheel<Due>, next: Next, ending: Ending) {
        let mut phase = lock(&self.phase);
        let Phase::Busy { wanted, .. } = *phase else { return };
        let next = match wanted {
            Some(Wanted::Cancelled) => return self.end(phase, Ending::Cancelled),
            Some(Wanted::Next(next)) => next,
            None => next,
        };
        match self.arm(wheel, next) {
            Phase::Ended(Ending::Done) => self.end(phase, ending),
            Phase::Ended(Ending::Refused(Refusal::Closed)) => self.end(phase, Ending::ShutDown),
            Phase::Ended(refused) => self.end(phase, refused),
            armed => {
                *phase = armed;
                drop(phase);
                self.quiet.notify_all();
            }
        }
    }

    /// Ends, and drops the work where no lock is held: it is the user's.
    fn end(&self, mut phase: MutexGuard<'_, Phase>, ending: Ending) {
        *phase = Phase::Ended(ending);
        drop(phase);
        self.quiet.notify_all();
        let work = lock(&self.work).take();
        drop(work);
    }

    /// Arms a timer for what is to come next. The caller holds the phase's lock.
    fn arm(self: &Arc<Self>, wheel: &Wheel<Due>, next: Next) -> Phase {
        let pinned = wheel.pin();
        let timer = Due(Arc::clone(self));
        let (inserted, due, aim) = match next {
            Next::End => return Phase::Ended(Ending::Done),
            Next::At(at) => (pinned.insert_at(timer, at), Some(at), Aim::Run),
            Next::After(delay) => {
                (pinned.insert(timer, delay), pinned.now().checked_add(delay), Aim::Run)
            }
            Next::AskAfter(delay) => {
                (pinned.insert(timer, delay), pinned.now().checked_add(delay), Aim::Ask)
            }
        };
        match (inserted, due) {
            (Ok(id), Some(due)) => {
                // The clock's lag is added to a delay, and the sum rounds up to a tick.
                let exact = matches!(next, Next::At(_));
                let deadline = if exact { None } else { pinned.deadline(id) };
                Phase::Armed(Armed { id, due: deadline.unwrap_or(due), aim })
            }
            (Err(InsertError { reason: Refusal::BeyondRange(beyond), value }), Some(due)) => {
                match pinned.insert(value, beyond.longest) {
                    Ok(id) => Phase::Armed(Armed { id, due, aim: Aim::Nearer }),
                    Err(refused) => Phase::Ended(Ending::Refused(refused.reason)),
                }
            }
            (Err(refused), _) => Phase::Ended(Ending::Refused(refused.reason)),
            // Accepted, and yet beyond all time: no wheel's range is that long.
            (Ok(id), None) => {
                drop(pinned.cancel(id));
                Phase::Ended(Ending::Done)
            }
        }
    }
}

impl Work {
    /// Runs, if that is what the timer was for, and asks the rule what comes next. Answers that,
    /// and the payload of a panic.
    fn act(
        &mut self,
        last: &mut LastRun,
        armed: Armed,
        timer: &Expired<()>,
        wheel: &Wheel<Due>,
    ) -> (Next, Option<Payload>) {
        let mut panic = None;
        if armed.aim == Aim::Run {
            last.due = armed.due;
            last.began = wheel.pin().now();
            last.late = last.began.saturating_duration_since(armed.due.max(timer.deadline));
            panic = catch_unwind(AssertUnwindSafe(&mut self.body)).err();
            last.ended = wheel.pin().now();
        }
        if panic.is_some() && self.after_panic == AfterPanic::Stop {
            return (Next::End, panic);
        }
        match catch_unwind(AssertUnwindSafe(|| self.rule.next(last))) {
            Ok(next) => (next, panic),
            Err(payload) => (Next::End, Some(payload)),
        }
    }
}

impl Armed {
    /// Moves the timer to what is to come next, if it is still armed and that is in its range.
    fn is_moved(&mut self, wheel: &Wheel<Due>, next: Next) -> bool {
        let moved = match next {
            Next::At(at) => wheel.reset_at(self.id, at),
            Next::After(delay) => wheel.reset(self.id, delay),
            Next::AskAfter(_) | Next::End => Ok(false),
        };
        let deadline = wheel.deadline(self.id);
        let due = if let Next::At(at) = next { Some(at) } else { deadline };
        if let (Ok(true), Some(due)) = (moved, due) {
            *self = Self { due, aim: Aim::Run, ..*self };
            return true;
        }
        false
    }
}

impl Phase {
    /// Armed by the timer `id`, or not.
    fn armed_as(&self, id: TimerId) -> Option<Armed> {
        match self {
            Phase::Armed(armed) if armed.id == id => Some(*armed),
            _ => None,
        }
    }
}

impl fmt::Debug for Closure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut closure = f.debug_struct("Closure");
        closure.field("next_run", &self.next_run()).field("ending", &self.ending());
        closure.finish_non_exhaustive()
    }
}

/// Locks; a panic under one of these locks leaves nothing half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
