//! The effect of a scheduler's shutdown on one closure.

#![forbid(unsafe_code)]

use super::closure::{Closure, Due};
use super::next_run::NextRun;
use super::rule::LastRun;
use super::state::{Arming, ClosureState, Ending, HandleRequest, Phase};
use super::work::Work;
use crate::Wheel;
use crate::panics::ignore_poison;
use std::sync::MutexGuard;
use std::thread;

/// The work of a closure that was still to run, for a shutdown to return.
pub(super) struct UnrunWork {
    pub(super) work: Work,
    pub(super) last: LastRun,
    pub(super) next_run: NextRun,
}

impl Closure {
    /// Ends the closure after the scheduler was shut down and the timer `number` was drained.
    /// Returns the work, or `None` if that timer no longer arms the closure.
    pub(super) fn shut_down(&self, number: u64) -> Option<UnrunWork> {
        let state = ignore_poison(self.state.lock());
        let armed = state.armed_as(number)?;
        self.take_unrun(state, armed)
    }

    /// Ends a listed closure after the scheduler was shut down and the wheel was drained. Returns
    /// the work if a run was still to come and its timer is not on its way.
    ///
    /// Waits for a rule that is being asked, unless the rule itself shuts the scheduler down.
    pub(super) fn shut_down_listed(&self) -> Option<UnrunWork> {
        let mut state = ignore_poison(self.state.lock());
        while let Phase::Busy { thread, runs: false, requested } = &mut state.phase {
            if *thread == thread::current().id() {
                if !matches!(requested, Some(HandleRequest::End(_))) {
                    *requested = Some(HandleRequest::End(Ending::ShutDown));
                }
                return None;
            }
            state = self.wait_for_change(state);
        }
        match state.phase {
            Phase::Armed(armed) if armed.has_no_run_yet() => self.take_unrun(state, armed),
            _ => None,
        }
    }

    /// Ends an armed closure, notifies its waiters and its observer, and returns its work.
    fn take_unrun(
        &self,
        mut state: MutexGuard<'_, ClosureState>,
        armed: Arming,
    ) -> Option<UnrunWork> {
        state.phase = Phase::Ended(Ending::ShutDown);
        let work = ignore_poison(self.work.lock()).take();
        self.release_and_notify(state, true);
        let (work, last) = work?;
        Some(UnrunWork { work, last, next_run: armed.next_run })
    }

    /// Handles the drop of the last handle that could shut the scheduler down. A parked closure
    /// ends if the wheel is closed as well. Otherwise its own handle may still resume it.
    pub(super) fn abandon(&self, wheel: &Wheel<Due>) {
        let state = ignore_poison(self.state.lock());
        if wheel.is_closed() && matches!(state.phase, Phase::Armed(Arming { timer: None, .. })) {
            self.stop(state, Ending::ShutDown);
        }
    }
}
