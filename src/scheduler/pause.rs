//! The pause of a [`Closure`].

#![forbid(unsafe_code)]

use super::closure::{Closure, Due};
use super::state::{Ending, Phase};
use crate::panics::ignore_poison;
use crate::{Refusal, Wheel};
use std::sync::Arc;

impl Closure {
    /// Prevents runs until the closure is resumed. Returns `false` if no run is to come.
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
        // If the sweeper has already taken the timer, it finds that it was superseded.
        let timer = armed.timer.and_then(|timer| wheel.cancel(timer));
        drop(state);
        drop(timer);
        true
    }

    /// Allows runs again. Returns `false` if the closure was not paused.
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

    /// Returns `true` if the closure is paused and has not ended.
    pub(super) fn is_paused(&self) -> bool {
        ignore_poison(self.state.lock()).is_paused()
    }
}
