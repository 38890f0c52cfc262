//! [`ClosureState`]: the state of a scheduled closure, guarded by one lock.

#![forbid(unsafe_code)]

use super::ending::Ending;
use super::next_run::NextRun;
use crate::TimerId;
use std::thread::ThreadId;

/// The state of a closure. All fields are guarded by one lock.
pub(super) struct ClosureState {
    pub(super) phase: Phase,
    /// The number of timers that were armed so far.
    pub(super) armings: u64,
    /// The number of threads that wait for the end of a run.
    pub(super) waiting: u32,
    /// `true` if the closure is on the scheduler's list.
    pub(super) listed: bool,
    /// `true` if the closure holds a permit, on a wheel with a capacity.
    pub(super) has_permit: bool,
    /// `true` if a handle has paused the closure.
    pub(super) paused: bool,
}

/// The phase of a closure. [`Closure`](super::closure::Closure) describes the transitions.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    Armed(Arming),
    /// A thread runs the closure or asks its rule.
    Busy {
        thread: ThreadId,
        runs: bool,
        /// The request of a handle, which overrides the reply of the rule.
        requested: Option<HandleRequest>,
    },
    Ended(Ending),
}

/// The current timer of an armed closure.
#[derive(Clone, Copy)]
pub(super) struct Arming {
    pub(super) number: u64,
    /// `None` if the closure is parked.
    pub(super) timer: Option<TimerId>,
    pub(super) next_run: NextRun,
    /// `true` if the next run is beyond the range, so that the timer is due before it.
    pub(super) is_hop: bool,
}

/// A request that a handle has made while the closure was busy.
#[derive(Clone, Copy)]
pub(super) enum HandleRequest {
    Reset(NextRun),
    End(Ending),
}

impl Phase {
    pub(super) fn ending(self) -> Option<Ending> {
        match self {
            Self::Ended(ending) => Some(ending),
            _ => None,
        }
    }
}

impl Arming {
    /// Returns `true` if the pending timer, if any, is not for a run.
    pub(super) fn has_no_run_yet(&self) -> bool {
        self.timer.is_none() || self.is_hop || self.next_run.asks_rule
    }
}

impl ClosureState {
    pub(super) fn is_paused(&self) -> bool {
        self.paused && self.phase.ending().is_none()
    }

    /// Returns the arming if the closure is armed by the timer of this number.
    pub(super) fn armed_as(&self, number: u64) -> Option<Arming> {
        match self.phase {
            Phase::Armed(armed) if armed.number == number => Some(armed),
            _ => None,
        }
    }
}
