//! A scheduled closure: its state, and who may change it.
//!
//! ```text
//!             arm                fire               the rule says never,
//!   (made) ────────► Armed ───────────────► Busy ─── the wheel refuses, ──► Ended
//!                     ▲ │ ▲                 ▲ │      cancelled meanwhile      ▲
//!                     │ └─┘ reset           └─┤ a question: run now           │
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
//! run, is an armed timer as well. If the answer to a question is a run that is due, the thread
//! that asked runs it, and needs no timer in between.
//!
//! **Parked.** A closure that is paused is armed without a timer, until it is resumed. So is one
//! that is on the way and whose next timer a closed wheel refuses. Both are on the scheduler's list
//! ([`SchedulerShared`]), for a shutdown to hand them back.

#![forbid(unsafe_code)]

use super::ending::{Cancel, Ending};
use super::next_run::{NextRun, Schedule};
use super::rule::{LastRun, Next};
use super::shared::SchedulerShared;
use super::state::{Arming, ClosureState, HandleRequest, Phase};
use super::work::{RunOutcome, Work};
use crate::panics::ignore_poison;
use crate::{InsertError, Pinned, Refusal, Wheel};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
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
            closure.on_timer_dropped(number);
        }
    }
}

/// Is told, where no lock is held, that no run is under way any more; `stopped`: nor is to be,
/// since the closure was cancelled, or shut down before its next run. To be told does not panic.
pub(super) trait Observer: Send + Sync {
    fn on_idle(&self, stopped: bool);
}

/// How often a closure that has a place tries to find room in the wheel. Each refusal means that
/// other threads have ended and armed timers between two steps of the attempt.
const ATTEMPTS: u32 = 64;

/// How a closure begins: with a first run at `first`, which its rule returned when it was asked
/// with `last`.
pub(super) struct Start {
    pub(super) first: Schedule,
    pub(super) last: LastRun,
    pub(super) repeats: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// A scheduled closure.
pub(super) struct Closure {
    shared: Arc<SchedulerShared<Closure>>,
    repeats: bool,
    observer: Option<Arc<dyn Observer>>,
    pub(super) state: Mutex<ClosureState>,
    pub(super) work: Mutex<Option<(Work, LastRun)>>,
    /// Notified when the closure is no longer busy.
    idle: Condvar,
}

impl Closure {
    /// Arms a closure for the first time. `f` becomes its work once the wheel has accepted it, and
    /// comes back otherwise.
    pub(super) fn schedule<F>(
        wheel: &Wheel<Due>,
        shared: &Arc<SchedulerShared<Self>>,
        Start { first, last, repeats, observer }: Start,
        f: F,
        work: impl FnOnce(F) -> Work,
    ) -> Result<Arc<Self>, InsertError<F>> {
        if shared.is_closed() {
            return Err(InsertError { reason: Refusal::Closed, value: f });
        }
        let has_permit = match shared.acquire_permit() {
            Ok(has_permit) => has_permit,
            Err(reason) => return Err(InsertError { reason, value: f }),
        };
        let closure = Arc::new(Self {
            shared: Arc::clone(shared),
            repeats,
            observer,
            state: Mutex::new(ClosureState {
                phase: Phase::Ended(Ending::Done),
                armings: 0,
                waiting: 0,
                listed: false,
                has_permit,
                paused: false,
            }),
            work: Mutex::new(None),
            idle: Condvar::new(),
        });
        // A timer that fires before the work is there waits for this lock.
        let mut state = ignore_poison(closure.state.lock());
        let pinned = wheel.pin();
        let armed = first.resolve(wheel, &pinned).and_then(|next_run| {
            let next_run = next_run.map(|next_run| closure.arm(&mut state, &pinned, next_run));
            next_run.transpose()
        });
        match armed {
            Ok(None) => {}
            Ok(Some(armed)) => state.phase = Phase::Armed(armed),
            Err(reason) => {
                closure.deregister(state);
                return Err(InsertError { reason, value: f });
            }
        }
        *ignore_poison(closure.work.lock()) = Some((work(f), last));
        drop(state);
        Ok(closure)
    }

    /// The closure's timer has fired.
    pub(super) fn fire(self: &Arc<Self>, number: u64, wheel: &Wheel<Due>, deadline: Instant) {
        let Some(armed) = self.begin(number) else { return };
        if armed.is_hop {
            let _ = self.finish(wheel, Ok(Some(armed.next_run)), Ending::Done, true);
            return;
        }
        // Once, or twice where a question is followed by a run.
        let mut due_run = Some(armed.next_run);
        while let Some(next_run) = due_run {
            let outcome = match &mut *ignore_poison(self.work.lock()) {
                Some((work, last)) => {
                    work.run_or_ask(last, next_run, deadline, || wheel.pin().now())
                }
                None => RunOutcome {
                    next: Schedule::exactly(Next::End),
                    ending: Ending::Done,
                    panic: None,
                },
            };
            let may_be_moved = outcome.ending == Ending::Done;
            let next = outcome.next.resolve(wheel, &wheel.pin());
            due_run = self.finish(wheel, next, outcome.ending, may_be_moved);
            // Reported as any panic of a handler is.
            if let Some(payload) = outcome.panic {
                resume_unwind(payload);
            }
        }
    }

    /// The closure's timer was dropped unfired.
    pub(super) fn on_timer_dropped(&self, number: u64) {
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
                let timer = armed.timer.and_then(|timer| wheel.cancel(timer));
                self.stop(state, Ending::Cancelled);
                drop(timer);
                Cancel::Prevented
            }
            Phase::Busy { requested: Some(HandleRequest::End(_)), .. } | Phase::Ended(_) => {
                Cancel::Ended
            }
            Phase::Busy { runs, requested, .. } => {
                *requested = Some(HandleRequest::End(Ending::Cancelled));
                if *runs { Cancel::LastRun } else { Cancel::Prevented }
            }
        }
    }

    /// Lets the next run come at another time, if there is one to come. Returns whether there is.
    pub(super) fn reset(self: &Arc<Self>, wheel: &Wheel<Due>, next: Next) -> Result<bool, Refusal> {
        let mut state = ignore_poison(self.state.lock());
        if !self.has_pending_run(&state) {
            return Ok(false);
        }
        let pinned = wheel.pin();
        let Some(next_run) = Schedule::exactly(next).resolve(wheel, &pinned)? else {
            return Ok(false);
        };
        let next_run = NextRun { moved: true, ..next_run };
        if let Phase::Busy { requested, .. } = &mut state.phase {
            *requested = Some(HandleRequest::Reset(next_run));
            return Ok(true);
        }
        let Phase::Armed(armed) = state.phase else { return Ok(false) };
        if state.paused {
            state.phase = Phase::Armed(Arming { next_run, ..armed });
            return Ok(true);
        }
        if let Some(timer) = armed.timer {
            let (moved, is_hop) = match pinned.reset_at(timer, next_run.due) {
                Err(beyond) => {
                    self.list(&mut state);
                    (pinned.reset(timer, beyond.longest), true)
                }
                moved => (moved, false),
            };
            if moved.map_err(Refusal::BeyondRange)? {
                state.phase = Phase::Armed(Arming { next_run, is_hop, ..armed });
                return Ok(true);
            }
        }
        // The sweeper has taken its timer, which finds that it was overtaken.
        state.phase = Phase::Armed(self.arm(&mut state, &pinned, next_run)?);
        Ok(true)
    }

    /// Lets no run begin until it is resumed. Returns whether one was to come.
    pub(super) fn pause(self: &Arc<Self>, wheel: &Wheel<Due>) -> bool {
        let mut state = ignore_poison(self.state.lock());
        if !self.has_pending_run(&state) {
            return false;
        }
        state.paused = true;
        let Phase::Armed(armed) = state.phase else { return true };
        let Some(parked) = self.park(&mut state, wheel, armed.next_run) else {
            self.stop(state, Ending::ShutDown);
            return false;
        };
        state.phase = Phase::Armed(parked);
        // If the sweeper has taken it already, it finds that it was overtaken.
        let timer = armed.timer.and_then(|timer| wheel.cancel(timer));
        drop(state);
        drop(timer);
        true
    }

    /// Lets runs begin again. Returns whether it was paused.
    pub(super) fn resume(self: &Arc<Self>, wheel: &Wheel<Due>) -> Result<bool, Refusal> {
        let mut state = ignore_poison(self.state.lock());
        if !state.is_paused() {
            return Ok(false);
        }
        if let Phase::Armed(parked) = state.phase {
            state.phase = Phase::Armed(self.arm(&mut state, &wheel.pin(), parked.next_run)?);
        }
        state.paused = false;
        Ok(true)
    }

    /// Whether it is paused, and not at its end.
    pub(super) fn is_paused(&self) -> bool {
        ignore_poison(self.state.lock()).is_paused()
    }

    /// When the next run is due, as far as the rule knows.
    pub(super) fn next_run(&self) -> Option<Instant> {
        self.upcoming()?.runs_at
    }

    /// What the wall clock says at the next run, if its rule goes by that.
    pub(super) fn next_time(&self) -> Option<SystemTime> {
        self.upcoming()?.time
    }

    /// What is to come, unless it is paused.
    fn upcoming(&self) -> Option<NextRun> {
        let state = ignore_poison(self.state.lock());
        match state.phase {
            Phase::Armed(armed) if !state.paused => Some(armed.next_run),
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
            state = self.wait_for_change(state);
        }
        true
    }

    /// Waits until the closure may no longer be busy as it is.
    pub(super) fn wait_for_change<'s>(
        &'s self,
        mut state: MutexGuard<'s, ClosureState>,
    ) -> MutexGuard<'s, ClosureState> {
        state.waiting += 1;
        let mut state = ignore_poison(self.idle.wait(state));
        state.waiting -= 1;
        state
    }

    /// Whether a handle may still say when, or that not.
    fn has_pending_run(&self, state: &ClosureState) -> bool {
        match state.phase {
            Phase::Busy { requested: Some(HandleRequest::End(_)), .. } | Phase::Ended(_) => false,
            Phase::Busy { runs, .. } => self.repeats || !runs,
            Phase::Armed(_) => true,
        }
    }

    /// From armed by this timer to busy.
    fn begin(&self, number: u64) -> Option<Arming> {
        let mut state = ignore_poison(self.state.lock());
        let armed = state.armed_as(number)?;
        let runs = !armed.is_hop && !armed.next_run.asks_rule;
        if runs && !self.repeats {
            self.release_permit(&mut state);
        }
        state.phase = Phase::Busy { thread: thread::current().id(), runs, requested: None };
        Some(armed)
    }

    /// From busy to armed, for what is wanted or else for `next`, or to ended. Returns a run that
    /// is due where a question was asked: the closure stays busy, with that.
    fn finish(
        self: &Arc<Self>,
        wheel: &Wheel<Due>,
        next: Result<Option<NextRun>, Refusal>,
        ending: Ending,
        may_be_moved: bool,
    ) -> Option<NextRun> {
        let mut state = ignore_poison(self.state.lock());
        let Phase::Busy { thread, runs, requested } = state.phase else { return None };
        let next = match requested {
            Some(HandleRequest::End(ending)) => {
                self.stop(state, ending);
                return None;
            }
            Some(HandleRequest::Reset(next_run)) if may_be_moved => Ok(Some(next_run)),
            _ => next,
        };
        let armed = match next {
            Ok(Some(_)) if runs && self.shared.is_closed() => Err(Refusal::Closed),
            Ok(Some(next_run)) if state.paused => {
                self.park(&mut state, wheel, next_run).map(Some).ok_or(Refusal::Closed)
            }
            Ok(Some(next_run)) if !runs && next_run.is_due && !next_run.moved => {
                state.armings += 1; // for those who wait for the run before
                state.phase = Phase::Busy { thread, runs: true, requested: None };
                self.notify(state, false);
                return Some(next_run);
            }
            Ok(Some(next_run)) => match self.arm(&mut state, &wheel.pin(), next_run) {
                // A run was to come, and a shutdown hands it back.
                Err(Refusal::Closed) if !runs => {
                    self.park(&mut state, wheel, next_run).map(Some).ok_or(Refusal::Closed)
                }
                armed => armed.map(Some),
            },
            Ok(None) => Ok(None),
            Err(refusal) => Err(refusal),
        };
        match armed {
            Ok(Some(armed)) => {
                state.phase = Phase::Armed(armed);
                self.notify(state, false);
            }
            Ok(None) => self.end(state, ending, false),
            // The wheel was closed before this run ended, which is the last one.
            Err(Refusal::Closed) => self.end(state, Ending::ShutDown, false),
            Err(refusal) => self.end(state, Ending::Refused(refusal), false),
        }
        None
    }

    /// Ends where a run was still to come.
    pub(super) fn stop(&self, state: MutexGuard<'_, ClosureState>, ending: Ending) {
        self.end(state, ending, true);
    }

    /// Ends, and drops the work where no lock is held: it is the user's.
    fn end(&self, mut state: MutexGuard<'_, ClosureState>, ending: Ending, stopped: bool) {
        state.phase = Phase::Ended(ending);
        let work = ignore_poison(self.work.lock()).take();
        self.notify(state, stopped);
        drop(work);
    }

    /// Lets go of the state, and tells the threads that wait for a run to end.
    pub(super) fn notify(&self, state: MutexGuard<'_, ClosureState>, stopped: bool) {
        let waiting = state.waiting > 0;
        match state.phase {
            Phase::Ended(_) => self.deregister(state),
            _ => drop(state),
        }
        if waiting {
            self.idle.notify_all();
        }
        if let Some(observer) = &self.observer {
            observer.on_idle(stopped);
        }
    }

    /// Has a shutdown look at this closure: its next timer is none of a run, or it has none.
    fn list(self: &Arc<Self>, state: &mut ClosureState) {
        if !state.listed {
            state.listed = true;
            self.shared.list(self);
        }
    }

    /// Armed without a timer; `None` if neither a shutdown nor a handle could do anything with it
    /// any more.
    fn park(
        self: &Arc<Self>,
        state: &mut ClosureState,
        wheel: &Wheel<Due>,
        next_run: NextRun,
    ) -> Option<Arming> {
        self.list(state);
        // In this order: where a scheduler has a driver, the wheel is closed before the list goes.
        if !self.shared.has_list() && wheel.is_closed() {
            return None;
        }
        state.armings += 1;
        Some(Arming { number: state.armings, timer: None, next_run, is_hop: false })
    }

    /// Gives its place to others, if it has one.
    fn release_permit(&self, state: &mut ClosureState) {
        if std::mem::take(&mut state.has_permit) {
            self.shared.release_permit();
        }
    }

    /// Lets go of the state of a closure that has ended, or has not begun, and of all that the
    /// scheduler keeps for it.
    fn deregister(&self, mut state: MutexGuard<'_, ClosureState>) {
        self.release_permit(&mut state);
        let listed = state.listed;
        drop(state);
        if listed {
            self.shared.unlist(self);
        }
    }

    /// Puts a timer into the wheel; the caller names it in the phase before it lets go of the
    /// state.
    fn arm(
        self: &Arc<Self>,
        state: &mut ClosureState,
        pinned: &Pinned<'_, Due>,
        next_run: NextRun,
    ) -> Result<Arming, Refusal> {
        state.armings += 1;
        let number = state.armings;
        // Before the timer is in the wheel: a shutdown drains that first, and then reads the list.
        if next_run.asks_rule {
            self.list(state);
        }
        let mut due = Due::new(Arc::clone(self), number);
        let mut attempts = if state.has_permit { ATTEMPTS } else { 1 };
        loop {
            let (inserted, is_hop) = match pinned.insert_at(due, next_run.due) {
                Err(InsertError { reason: Refusal::BeyondRange(beyond), value }) => {
                    self.list(state);
                    (pinned.insert(value, beyond.longest), true)
                }
                inserted => (inserted, false),
            };
            attempts -= 1;
            match inserted {
                Ok(id) => return Ok(Arming { number, timer: Some(id), next_run, is_hop }),
                Err(InsertError { reason: Refusal::AtCapacity { .. }, value }) if attempts > 0 => {
                    due = value;
                    thread::yield_now();
                }
                Err(InsertError { reason, mut value }) => {
                    // It was never named; its drop would wait for the state.
                    value.take();
                    return Err(reason);
                }
            }
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
        let busy = |thread| Phase::Busy { thread, runs: true, requested: None };
        let closure = Arc::new(Closure {
            shared: Arc::new(SchedulerShared::new(None)),
            repeats: true,
            observer: None,
            state: Mutex::new(ClosureState {
                phase: busy(thread::current().id()),
                armings: 1,
                waiting: 0,
                listed: false,
                has_permit: false,
                paused: false,
            }),
            work: Mutex::new(None),
            idle: Condvar::new(),
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
        closure.idle.notify_all();
        assert!(waiter.join().unwrap(), "it waited for the run that it came for");
    }
}
