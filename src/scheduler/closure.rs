//! [`Closure`]: a scheduled closure and the transitions of its state; and [`Observer`].
//!
//! ```text
//!             arm                fire               the rule ends it,
//!   (made) ────────► Armed ───────────────► Busy ─── the wheel refuses, ──► Ended
//!                     ▲ │ ▲                 ▲ │      cancelled meanwhile      ▲
//!                     │ └─┘ reset           └─┤ a question: run now           │
//!                     └───────────────────────┘ arm                           │
//!                     └────── cancel, shutdown, the timer is dropped ─────────┘
//! ```
//!
//! **One timer at a time.** An armed closure has one timer in the wheel, and its phase holds the
//! number of that arming. If a timer with another number fires, a handle has superseded it, and it
//! does nothing. The thread that changes the phase under its lock therefore decides, whatever the
//! sweeper has taken out of the wheel. If the current timer is dropped unfired, with the wheel or
//! by an executor, the closure ends, so that no thread waits for a run that cannot come.
//!
//! **One run at a time.** The thread that changes `Armed` to `Busy` runs the closure, and the next
//! timer is armed only afterwards. Only the busy thread locks the work (body and rule). User code
//! runs and is dropped while the lock of the phase is not held.
//!
//! **Hops.** A run beyond the wheel's range is armed as a timer at the longest delay, and a
//! question to the rule is a timer as well. If the reply to a question is a run that is due, the
//! thread that asked runs it without another timer.
//!
//! **Parked closures** are armed without a timer. A paused closure is parked until it is resumed. A
//! closure whose run is still to come is parked if a closed wheel refuses its next timer. Both are
//! on the scheduler's list ([`SchedulerShared`]), so that a shutdown returns them.

#![forbid(unsafe_code)]

use super::next_run::{NextRun, Schedule};
use super::rule::{LastRun, Next};
use super::shared::SchedulerShared;
use super::state::{Arming, Cancel, ClosureState, Ending, HandleRequest, Phase};
use super::work::{RunOutcome, Work};
use crate::panics::ignore_poison;
use crate::{InsertError, Pinned, Refusal, Wheel};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Instant, SystemTime};

/// The value type of a scheduler's wheel: the timer of a closure. Pass it to
/// [`Scheduler::fire`](super::Scheduler::fire) when it expires. Dropping it instead ends the
/// closure.
///
/// # Examples
///
/// One iteration of an event loop that sweeps for its scheduler:
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

    /// Takes the closure and the number of this timer, once.
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

/// The number of attempts of a closure with a permit to find room in the wheel. After each refusal,
/// other threads have ended and armed timers between two steps of the attempt.
const ATTEMPTS: u32 = 64;

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

/// The settings that a closure is created with.
pub(super) struct Start {
    /// The first event, which is the rule's reply to `last`.
    pub(super) first: Schedule,
    /// The record that the rule was asked with. It has no run yet.
    pub(super) last: LastRun,
    pub(super) repeats: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// An observer of a closure. Implementations must not panic.
pub(super) trait Observer: Send + Sync {
    /// Called under no lock, each time a run, a question to the rule or a hop has ended, and when
    /// the closure has ended. If `stopped`, the closure was cancelled or was shut down before its
    /// next run, so no run will follow.
    fn on_idle(&self, stopped: bool);
}

impl Closure {
    /// Arms a closure for the first time. `f` becomes its work after the wheel has accepted the
    /// timer. If the wheel refuses, the error contains `f`.
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
        // A timer that fires before the work is stored waits for this lock.
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

    /// Handles the expiry of one of the closure's timers.
    pub(super) fn fire(self: &Arc<Self>, number: u64, wheel: &Wheel<Due>, deadline: Instant) {
        let Some(armed) = self.set_busy(number) else { return };
        if armed.is_hop {
            let _ = self.finish(wheel, Ok(Some(armed.next_run)), Ending::Done, true);
            return;
        }
        // Once, or twice if a run follows a question.
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
            // Reported like a panic of a handler.
            if let Some(payload) = outcome.panic {
                resume_unwind(payload);
            }
        }
    }

    /// Ends the closure if its current timer was dropped unfired.
    pub(super) fn on_timer_dropped(&self, number: u64) {
        let state = ignore_poison(self.state.lock());
        if state.armed_as(number).is_some() {
            self.stop(state, Ending::ShutDown);
        }
    }

    /// Cancels the closure.
    pub(super) fn cancel(&self, wheel: &Wheel<Due>) -> Cancel {
        let mut state = ignore_poison(self.state.lock());
        match &mut state.phase {
            Phase::Armed(armed) => {
                // If the sweeper has already taken the timer, it finds the closure ended.
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

    /// Moves the next run. Returns `false` if no run is to come.
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
        // The sweeper has taken the timer, which will find that it was superseded.
        state.phase = Phase::Armed(self.arm(&mut state, &pinned, next_run)?);
        Ok(true)
    }

    /// Returns the instant of the next run, as far as the rule knows.
    pub(super) fn next_run(&self) -> Option<Instant> {
        self.upcoming()?.runs_at
    }

    /// Returns the wall-clock time of the next run, if its rule uses the wall clock.
    pub(super) fn next_time(&self) -> Option<SystemTime> {
        self.upcoming()?.time
    }

    /// Returns the next event, unless the closure is paused.
    fn upcoming(&self) -> Option<NextRun> {
        let state = ignore_poison(self.state.lock());
        match state.phase {
            Phase::Armed(armed) if !state.paused => Some(armed.next_run),
            _ => None,
        }
    }

    /// Returns `true` if a run is in progress.
    pub(super) fn is_running(&self) -> bool {
        matches!(ignore_poison(self.state.lock()).phase, Phase::Busy { runs: true, .. })
    }

    /// Returns the reason for the end, if the closure has ended.
    pub(super) fn ending(&self) -> Option<Ending> {
        ignore_poison(self.state.lock()).phase.ending()
    }

    /// Waits for the end of the run in progress, but not for later runs. Returns `false` if the
    /// caller is that run.
    pub(super) fn wait(&self) -> bool {
        let mut state = ignore_poison(self.state.lock());
        let armings = state.armings;
        while let Phase::Busy { thread, .. } = state.phase {
            // A later run belongs to another arming.
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

    /// Waits until the closure may have stopped being busy.
    pub(super) fn wait_for_change<'s>(
        &'s self,
        mut state: MutexGuard<'s, ClosureState>,
    ) -> MutexGuard<'s, ClosureState> {
        state.waiting += 1;
        let mut state = ignore_poison(self.idle.wait(state));
        state.waiting -= 1;
        state
    }

    /// Returns `true` if a handle can still move or prevent a run.
    pub(super) fn has_pending_run(&self, state: &ClosureState) -> bool {
        match state.phase {
            Phase::Busy { requested: Some(HandleRequest::End(_)), .. } | Phase::Ended(_) => false,
            Phase::Busy { runs, .. } => self.repeats || !runs,
            Phase::Armed(_) => true,
        }
    }

    /// Changes the phase from armed to busy, for the timer of this number. Returns `None` if a
    /// handle has superseded the timer. A closure that runs once also releases its permit.
    fn set_busy(&self, number: u64) -> Option<Arming> {
        let mut state = ignore_poison(self.state.lock());
        let armed = state.armed_as(number)?;
        let runs = !armed.is_hop && !armed.next_run.asks_rule;
        if runs && !self.repeats {
            self.release_permit(&mut state);
        }
        state.phase = Phase::Busy { thread: thread::current().id(), runs, requested: None };
        Some(armed)
    }

    /// Changes the phase from busy to armed or ended, by `next` or by the request that a handle has
    /// made meanwhile. Then notifies waiters and the observer.
    ///
    /// If the rule was asked and its reply is a run that is due, the closure stays busy for that
    /// run, which is returned.
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
                state.armings += 1; // for threads that wait for the previous run
                state.phase = Phase::Busy { thread, runs: true, requested: None };
                self.release_and_notify(state, false);
                return Some(next_run);
            }
            Ok(Some(next_run)) => match self.arm(&mut state, &wheel.pin(), next_run) {
                // A run was still to come, so that a shutdown returns the closure.
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
                self.release_and_notify(state, false);
            }
            Ok(None) => self.end(state, ending, false),
            // The wheel was closed before this run ended. It was the last one.
            Err(Refusal::Closed) => self.end(state, Ending::ShutDown, false),
            Err(refusal) => self.end(state, Ending::Refused(refusal), false),
        }
        None
    }

    /// Ends a closure before its next run, and notifies its observer that no run will follow.
    pub(super) fn stop(&self, state: MutexGuard<'_, ClosureState>, ending: Ending) {
        self.end(state, ending, true);
    }

    /// Ends the closure, and drops its work, which is user code, after the lock was released.
    fn end(&self, mut state: MutexGuard<'_, ClosureState>, ending: Ending, stopped: bool) {
        state.phase = Phase::Ended(ending);
        let work = ignore_poison(self.work.lock()).take();
        self.release_and_notify(state, stopped);
        drop(work);
    }

    /// Releases the lock of the state. A closure that has ended also releases its permit and is
    /// taken off the scheduler's list. Then notifies the threads that wait for the end of a run,
    /// and calls the observer, under no lock.
    pub(super) fn release_and_notify(&self, state: MutexGuard<'_, ClosureState>, stopped: bool) {
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

    /// Puts the closure on the scheduler's list, because it has no timer or its next timer is not
    /// for a run.
    fn list(self: &Arc<Self>, state: &mut ClosureState) {
        if !state.listed {
            state.listed = true;
            self.shared.list(self);
        }
    }

    /// Arms the closure without a timer. Returns `None` if neither a shutdown nor a handle could
    /// ever reach it again.
    pub(super) fn park(
        self: &Arc<Self>,
        state: &mut ClosureState,
        wheel: &Wheel<Due>,
        next_run: NextRun,
    ) -> Option<Arming> {
        self.list(state);
        // In this order, because a scheduler with a driver closes the wheel before it drops the
        // list.
        if !self.shared.has_list() && wheel.is_closed() {
            return None;
        }
        state.armings += 1;
        Some(Arming { number: state.armings, timer: None, next_run, is_hop: false })
    }

    /// Releases the closure's permit, if it holds one.
    fn release_permit(&self, state: &mut ClosureState) {
        if std::mem::take(&mut state.has_permit) {
            self.shared.release_permit();
        }
    }

    /// Releases the permit of a closure that has ended or was refused, then the lock of its state,
    /// and takes the closure off the scheduler's list.
    fn deregister(&self, mut state: MutexGuard<'_, ClosureState>) {
        self.release_permit(&mut state);
        let listed = state.listed;
        drop(state);
        if listed {
            self.shared.unlist(self);
        }
    }

    /// Inserts a timer into the wheel. The caller stores its number in the phase before it releases
    /// the state.
    pub(super) fn arm(
        self: &Arc<Self>,
        state: &mut ClosureState,
        pinned: &Pinned<'_, Due>,
        next_run: NextRun,
    ) -> Result<Arming, Refusal> {
        state.armings += 1;
        let number = state.armings;
        // Before the insert, because a shutdown drains the wheel first and then reads the list.
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
                    // The phase never held this timer, and its drop would wait for the state.
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

    /// A waiter that checks the state when the next run, on its own thread, is already in progress.
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
