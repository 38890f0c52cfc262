//! [`Seen`], the observations of one delivery, and [`Broken`], the guarantees that they break.

use crate::plan::Clocks;
use crate::story::Story;

/// The conditions of a run, which are the same for all timers.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) clocks: Clocks,
    /// The times when the store was paused.
    pub(crate) paused: Vec<(u64, u64)>,
}

/// The observations of one delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The start of each attempt.
    pub(crate) begun: Vec<u64>,
    /// A handler returned `Ok`, and its outcome was not logged.
    pub(crate) untold: bool,
    pub(crate) acknowledged: u64,
    /// It ended because it had been cancelled.
    pub(crate) cancelled: bool,
    pub(crate) letters: u64,
    /// A handler began to cancel the repetition.
    pub(crate) ends_repetition: bool,
    /// The time of the lease that it ended under, if that was logged, as in
    /// [`Entry::leased`](crate::log::Entry::leased).
    pub(crate) leased: Option<u64>,
}

impl Seen {
    pub(crate) fn has_ended(&self) -> bool {
        self.acknowledged + self.letters > 0 || self.untold
    }

    /// Returns `true` if it ended, and its worker was killed before it could log that.
    pub(crate) fn is_untold(&self) -> bool {
        self.untold && self.acknowledged + self.letters == 0
    }
}

/// The guarantees that were broken for a timer, or for one delivery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Broken {
    pub(crate) lost: bool,
    pub(crate) early: bool,
    pub(crate) twice: bool,
    pub(crate) stale: bool,
}

impl Broken {
    /// Adds the guarantees that are broken regardless of the delivery's outcome.
    pub(crate) fn add(&mut self, planned: u64, one: &Seen, story: &Story, run: &Conditions) {
        let (ahead, slack) = (run.clocks.ahead(), run.clocks.slack());
        let paused = story.paused.map(|(since, until)| (since + slack, until));
        self.early |= one.begun.iter().any(|at| at + ahead < planned);
        self.stale |= one.begun.iter().any(|at| {
            let is_within = |(since, until): &(u64, u64)| (since..until).contains(&at);
            run.paused.iter().chain(&paused).any(is_within)
        });
        self.twice |= one.acknowledged + one.letters > 1;
    }
}
