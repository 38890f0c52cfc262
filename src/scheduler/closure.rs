//! A scheduled closure: its state, and who may change it.
//!
//! ```text
//!             arm                fire               the rule says never,
//!   (made) ────────► Armed ───────────────► Busy ─── the wheel refuses, ──► Ended
//!                     ▲ │ ▲                   │      cancelled meanwhile      ▲
//!                     │ └─┘ reset             │                               │
//!                     └───────────────────────┘ arm                           │
//!                     └────── cancel, shutdown, the timer is dropped ─────────┘
//! ```
//!
//! **One timer at a time.** An armed closure has one timer in the wheel, and its phase names it,
//! by the number of the arming. A timer that fires and is not the one named was overtaken by a
//! handle, and does nothing. So whoever changes the phase under its lock has decided, whatever the
//! sweeper has taken. A timer that is named and is dropped unfired, with the wheel or by an
//! executor, ends its closure: nobody waits for a run that cannot come.
//!
//! **One run at a time.** Whoever turns `Armed` into `Busy` runs; the next timer is armed only
//! after that. The work (body and rule) is locked by the thread that is busy, or by nobody. What
//! is the user's runs and is dropped outside of the phase's lock.
//!
//! **On the way.** What is due beyond the wheel's range, or is a question to the rule and not a
//! run, is an armed timer as well.

#![forbid(unsafe_code)]

use super::aim::{Aim, Plan};
use super::ending::{Cancel, Ending};
use super::rule::{LastRun, Next};
use super::work::{Outcome, Work};
use crate::panics::ignore_poison;
use crate::{InsertError, Pinned, Refusal, TimerId, Wheel};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, ThreadId};
use std::time::{Instant, SystemTime};

/// What the wheel of a scheduler holds: the timer of a closure, to be given to
/// [`Scheduler::fire`](super::Scheduler::fire). Dropping it instead ends the closure.
///
/// # Examples
///
/// A turn of an event loop that sweeps for its scheduler:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::scheduler::{Due, Scheduler};
/// use tourbillon::{Builder, ManualClock, Sweeper};
///
/// fn turn(sweeper: &mut Sweeper<Due>, scheduler: &Scheduler) -> Option<Instant> {
///     sweeper.sweep(|timer| scheduler.fire(timer)).next_deadline
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let scheduler = Scheduler::new(wheel);
/// let greeting = scheduler.after(Duration::from_secs(1), || "hello")?;
/// clock.advance(Duration::from_secs(1));
/// let _until = turn(&mut sweeper, &scheduler);
/// assert_eq!(greeting.join()?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Due(Option<(Arc<Closure>, u64)>);

impl Due {
    fn new(closure: Arc<Closure>, number: u64) -> Self {
        Self(Some((closure, number)))
    }

    /// The closure, and which of its timers this is; once.
    pub(super) fn take(&mut self) -> Option<(Arc<Closure>, u64)> {
        self.0.take()
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        if let Some((closure, number)) = self.take() {
            closure.lose(number);
        }
    }
}

/// Is told, where no lock is held, that no run is under way any more; `stopped`: nor is to be,
/// since the closure was cancelled, or shut down before its next run. To be told does not panic.
pub(super) trait Observer: Send + Sync {
    fn is_quiet(&self, stopped: bool);
}

/// How a closure begins: with a first run at `first`, which its rule returned when it was asked
/// with `last`.
pub(super) struct Start {
    pub(super) first: Plan,
    pub(super) last: LastRun,
    pub(super) repeats: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// A scheduled closure.
pub(super) struct Closure {
    repeats: bool,
    observer: Option<Arc<dyn Observer>>,
    state: Mutex<State>,
    work: Mutex<Option<(Work, LastRun)>>,
    /// Notified when the closure is no longer busy.
    quiet: Condvar,
}

struct State {
    phase: Phase,
    /// How many timers it has had.
    armings: u64,
    /// How many threads wait for the end of a run.
    waiting: u32,
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
    number: u64,
    id: TimerId,
    aim: Aim,
    /// Whether its timer was due before the aim is, because that is beyond the range.
    on_the_way: bool,
}

#[derive(Clone, Copy)]
enum Wanted {
    Aim(Aim),
    Cancelled,
}

impl Closure {
    /// Arms a closure for the first time. `f` becomes its work once the wheel has accepted it, and
    /// comes back otherwise.
    pub(super) fn schedule<F>(
        wheel: &Wheel<Due>,
        Start { first, last, repeats, observer }: Start,
        f: F,
        work: impl FnOnce(F) -> Work,
    ) -> Result<Arc<Self>, InsertError<F>> {
        let closure = Arc::new(Self {
            repeats,
            observer,
            state: Mutex::new(State { phase: Phase::Ended(Ending::Done), armings: 0, waiting: 0 }),
            work: Mutex::new(None),
            quiet: Condvar::new(),
        });
        // A timer that fires before the work is there waits for this lock.
        let mut state = ignore_poison(closure.state.lock());
        let pinned = wheel.pin();
        let armed = first.aim(wheel, &pinned).and_then(|aim| {
            let aim = aim.map(|aim| closure.arm(&mut state, &pinned, aim));
            aim.transpose()
        });
        match armed {
            Ok(None) => {}
            Ok(Some(armed)) => state.phase = Phase::Armed(armed),
            Err(reason) => return Err(InsertError { reason, value: f }),
        }
        *ignore_poison(closure.work.lock()) = Some((work(f), last));
        drop(state);
        Ok(closure)
    }

    /// The closure's timer has fired.
    pub(super) fn fire(self: &Arc<Self>, number: u64, wheel: &Wheel<Due>, deadline: Instant) {
        let Some(armed) = self.begin(number) else { return };
        if armed.on_the_way {
            return self.finish(wheel, Ok(Some(armed.aim)), Ending::Done, true);
        }
        let outcome = match &mut *ignore_poison(self.work.lock()) {
            Some((work, last)) => work.act(last, armed.aim, deadline, || wheel.pin().now()),
            None => Outcome { next: Plan::plain(Next::End), ending: Ending::Done, panic: None },
        };
        let may_be_moved = outcome.ending == Ending::Done;
        let next = outcome.next.aim(wheel, &wheel.pin());
        self.finish(wheel, next, outcome.ending, may_be_moved);
        // Reported as any panic of a handler is.
        if let Some(payload) = outcome.panic {
            resume_unwind(payload);
        }
    }

    /// The closure's timer was dropped unfired.
    pub(super) fn lose(&self, number: u64) {
        let state = ignore_poison(self.state.lock());
        if state.armed_as(number).is_some() {
            self.stop(state, Ending::ShutDown);
        }
    }

    /// Cancels.
    pub(super) fn cancel(&self, wheel: &Wheel<Due>) -> Cancel {
        let mut state = ignore_poison(self.state.lock());
        match &mut state.phase {
            Phase::Armed(armed) => {
                // If the sweeper has taken it already, it finds the closure ended.
                let timer = wheel.cancel(armed.id);
                self.stop(state, Ending::Cancelled);
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

    /// Lets the next run come at another time, if there is one to come. Returns whether there is.
    pub(super) fn reset(self: &Arc<Self>, wheel: &Wheel<Due>, next: Next) -> Result<bool, Refusal> {
        let mut state = ignore_poison(self.state.lock());
        match state.phase {
            Phase::Busy { wanted: Some(Wanted::Cancelled), .. } | Phase::Ended(_) => {
                return Ok(false);
            }
            Phase::Busy { runs: true, .. } if !self.repeats => return Ok(false),
            Phase::Busy { .. } | Phase::Armed(_) => {}
        }
        let pinned = wheel.pin();
        let Some(aim) = Plan::plain(next).aim(wheel, &pinned)? else { return Ok(false) };
        let aim = Aim { moved: true, ..aim };
        if let Phase::Busy { wanted, .. } = &mut state.phase {
            *wanted = Some(Wanted::Aim(aim));
            return Ok(true);
        }
        let Phase::Armed(armed) = &mut state.phase else { return Ok(false) };
        if pinned.reset_at(armed.id, aim.due) == Ok(true) {
            *armed = Armed { aim, on_the_way: false, ..*armed };
            return Ok(true);
        }
        let overtaken = armed.id;
        state.phase = Phase::Armed(self.arm(&mut state, &pinned, aim)?);
        drop(state);
        // Nothing is there if the sweeper has taken it already.
        drop(pinned.cancel(overtaken));
        Ok(true)
    }

    /// The scheduler was shut down and has this closure's timer back. Returns the work and when it
    /// was due, if it was still to run.
    pub(super) fn shut_down(&self, number: u64) -> Option<(Work, Instant)> {
        let mut state = ignore_poison(self.state.lock());
        let due = state.armed_as(number)?.aim.due;
        state.phase = Phase::Ended(Ending::ShutDown);
        self.tell(state, true);
        Some((ignore_poison(self.work.lock()).take()?.0, due))
    }

    /// When the next run is due, or the rule is asked for it.
    pub(super) fn next_run(&self) -> Option<Instant> {
        match ignore_poison(self.state.lock()).phase {
            Phase::Armed(armed) => Some(armed.aim.due),
            _ => None,
        }
    }

    /// What the wall clock says at the next run, if its rule goes by that.
    pub(super) fn next_time(&self) -> Option<SystemTime> {
        match ignore_poison(self.state.lock()).phase {
            Phase::Armed(armed) => armed.aim.time,
            _ => None,
        }
    }

    /// Whether a run is under way.
    pub(super) fn is_running(&self) -> bool {
        matches!(ignore_poison(self.state.lock()).phase, Phase::Busy { runs: true, .. })
    }

    /// Why it does not run again, once that is so.
    pub(super) fn ending(&self) -> Option<Ending> {
        ignore_poison(self.state.lock()).phase.ending()
    }

    /// Waits for the end of a run that is under way, and not for those after it. `false`: the
    /// caller is that run.
    pub(super) fn wait(&self) -> bool {
        let mut state = ignore_poison(self.state.lock());
        let armings = state.armings;
        while let Phase::Busy { thread, .. } = state.phase {
            // The next run is another arming's.
            if state.armings != armings {
                break;
            }
            if thread == thread::current().id() {
                return false;
            }
            state.waiting += 1;
            state = ignore_poison(self.quiet.wait(state));
            state.waiting -= 1;
        }
        true
    }

    /// From armed by this timer to busy.
    fn begin(&self, number: u64) -> Option<Armed> {
        let mut state = ignore_poison(self.state.lock());
        let armed = state.armed_as(number)?;
        let runs = !armed.on_the_way && !armed.aim.asks;
        state.phase = Phase::Busy { thread: thread::current().id(), runs, wanted: None };
        Some(armed)
    }

    /// From busy to armed, for what is wanted or else for `next`, or to ended.
    fn finish(
        self: &Arc<Self>,
        wheel: &Wheel<Due>,
        next: Result<Option<Aim>, Refusal>,
        ending: Ending,
        may_be_moved: bool,
    ) {
        let mut state = ignore_poison(self.state.lock());
        let Phase::Busy { wanted, .. } = state.phase else { return };
        let moved = match wanted {
            Some(Wanted::Cancelled) => return self.stop(state, Ending::Cancelled),
            Some(Wanted::Aim(aim)) if may_be_moved => Some(aim),
            _ => None,
        };
        let pinned = wheel.pin();
        let armed = match moved.and_then(|aim| self.arm(&mut state, &pinned, aim).ok()) {
            Some(armed) => Ok(Some(armed)),
            None => next.and_then(|next| {
                let armed = next.map(|aim| self.arm(&mut state, &pinned, aim));
                armed.transpose()
            }),
        };
        drop(pinned);
        match armed {
            Ok(Some(armed)) => {
                state.phase = Phase::Armed(armed);
                self.tell(state, false);
            }
            Ok(None) => self.end(state, ending, false),
            // The wheel was closed before this run ended, which is the last one.
            Err(Refusal::Closed) => self.end(state, Ending::ShutDown, false),
            Err(refusal) => self.end(state, Ending::Refused(refusal), false),
        }
    }

    /// Ends where a run was still to come.
    fn stop(&self, state: MutexGuard<'_, State>, ending: Ending) {
        self.end(state, ending, true);
    }

    /// Ends, and drops the work where no lock is held: it is the user's.
    fn end(&self, mut state: MutexGuard<'_, State>, ending: Ending, stopped: bool) {
        state.phase = Phase::Ended(ending);
        let work = ignore_poison(self.work.lock()).take();
        self.tell(state, stopped);
        drop(work);
    }

    /// Lets go of the state, and tells whoever waits for a run to end.
    fn tell(&self, state: MutexGuard<'_, State>, stopped: bool) {
        let waiting = state.waiting > 0;
        drop(state);
        if waiting {
            self.quiet.notify_all();
        }
        if let Some(observer) = &self.observer {
            observer.is_quiet(stopped);
        }
    }

    /// Puts a timer into the wheel; the caller names it in the phase before it lets go of the
    /// state.
    fn arm(
        self: &Arc<Self>,
        state: &mut State,
        pinned: &Pinned<'_, Due>,
        aim: Aim,
    ) -> Result<Armed, Refusal> {
        state.armings += 1;
        let number = state.armings;
        let (inserted, on_the_way) =
            match pinned.insert_at(Due::new(Arc::clone(self), number), aim.due) {
                Err(InsertError { reason: Refusal::BeyondRange(beyond), value }) => {
                    (pinned.insert(value, beyond.longest), true)
                }
                inserted => (inserted, false),
            };
        match inserted {
            Ok(id) => Ok(Armed { number, id, aim, on_the_way }),
            Err(InsertError { reason, mut value }) => {
                // It was never named; its drop would wait for the state.
                value.take();
                Err(reason)
            }
        }
    }
}

impl Phase {
    fn ending(self) -> Option<Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            _ => None,
        }
    }
}

impl State {
    /// Armed by the timer of this number, or not.
    fn armed_as(&self, number: u64) -> Option<Armed> {
        match self.phase {
            Phase::Armed(armed) if armed.number == number => Some(armed),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A waiter that comes to look when the next run, its own thread's, is under way already.
    #[test]
    #[allow(clippy::disallowed_methods, reason = "a waiter is a thread")]
    fn a_wait_is_for_one_run() {
        let busy = |thread| Phase::Busy { thread, runs: true, wanted: None };
        let closure = Arc::new(Closure {
            repeats: true,
            observer: None,
            state: Mutex::new(State {
                phase: busy(thread::current().id()),
                armings: 1,
                waiting: 0,
            }),
            work: Mutex::new(None),
            quiet: Condvar::new(),
        });
        let waits = Arc::clone(&closure);
        let waiter = thread::spawn(move || waits.wait());
        let mut state = loop {
            let state = closure.state.lock().unwrap();
            if state.waiting > 0 {
                break state;
            }
            drop(state);
            thread::yield_now();
        };
        state.armings = 2;
        state.phase = busy(waiter.thread().id());
        drop(state);
        closure.quiet.notify_all();
        assert!(waiter.join().unwrap(), "it waited for the run that it came for");
    }
}
