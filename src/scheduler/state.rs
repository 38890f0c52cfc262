//! [`ClosureState`] of a scheduled closure: its phase, and what goes with it.

#![forbid(unsafe_code)]

use super::ending::Ending;
use super::next_run::NextRun;
use crate::TimerId;
use std::thread::ThreadId;

/// What is behind the lock of a closure's state.
pub(super) struct ClosureState {
    pub(super) phase: Phase,
    /// How many timers it has had.
    pub(super) armings: u64,
    /// How many threads wait for the end of a run.
    pub(super) waiting: u32,
    /// Whether it is on the scheduler's list.
    pub(super) listed: bool,
    /// Whether it has a place that is counted, in a wheel with a capacity.
    pub(super) has_permit: bool,
    /// Whether a handle has paused it.
    pub(super) paused: bool,
}

#[derive(Clone, Copy)]
pub(super) enum Phase {
    Armed(Arming),
    /// A thread has the work: it runs, or asks the rule.
    Busy {
        thread: ThreadId,
        runs: bool,
        /// What a handle wants to happen next, in place of what the rule says.
        requested: Option<HandleRequest>,
    },
    Ended(Ending),
}

#[derive(Clone, Copy)]
pub(super) struct Arming {
    pub(super) number: u64,
    /// None if it is parked.
    pub(super) timer: Option<TimerId>,
    pub(super) next_run: NextRun,
    /// Whether its timer was due before the next run is, because that is beyond the range.
    pub(super) is_hop: bool,
}

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
    /// Whether the timer that it has, if any, is none of a run.
    pub(super) fn has_no_run_yet(&self) -> bool {
        self.timer.is_none() || self.is_hop || self.next_run.asks_rule
    }
}

impl ClosureState {
    pub(super) fn is_paused(&self) -> bool {
        self.paused && self.phase.ending().is_none()
    }

    /// Armed by the timer of this number, or not.
    pub(super) fn armed_as(&self, number: u64) -> Option<Arming> {
        match self.phase {
            Phase::Armed(armed) if armed.number == number => Some(armed),
            _ => None,
        }
    }
}
