//! [`System`]: a timer under measurement.
//!
//! A system starts empty and allocates memory as timers are armed. A caller keeps a handle for each
//! of its timers at the timer's place, which is also the timer's value.

use crate::workload::{Move, Workload};
use std::time::Duration;

/// One caller of a measured timer. It stays on the thread that created it.
pub(crate) trait System {
    /// Its name in the results.
    const NAME: &'static str;

    /// The part that its callers share.
    type Shared: Clone + Send + 'static;

    /// Creates an empty system for `timers` timers in all.
    fn start(timers: usize) -> Self::Shared;

    /// Creates a caller with `timers` handles.
    fn caller(shared: Self::Shared, timers: usize) -> Self;

    /// Returns `true` if its interface supports the workload.
    fn can(_workload: Workload) -> bool {
        true
    }

    /// Arms a timer for each delay, from place 0 on.
    fn insert(&mut self, delays: &'static [Duration]);

    /// For each move, cancels the timer there and inserts a new one.
    fn cancel_insert(&mut self, moves: &'static [Move]);

    /// For each move, changes the deadline of the timer there.
    fn reset(&mut self, moves: &'static [Move]);
}
