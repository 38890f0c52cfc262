//! What the dashboard shows of a wheel. It travels as a line of JSON for each moment, which
//! `endpoint.rs` writes and `heard.rs` reads.

use std::time::Duration;

/// A wheel at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// Since the endpoint was opened.
    pub(crate) at: Duration,
    pub(crate) armed: u64,
    pub(crate) inserted: u64,
    pub(crate) reset: u64,
    pub(crate) cancelled: u64,
    pub(crate) fired: u64,
    pub(crate) stale: u64,
    pub(crate) bytes: u64,
    pub(crate) longest_sweep: Duration,
    /// Half of all fired timers were late by so much at most, 99 of 100, and all.
    pub(crate) late: [Duration; 3],
    /// How many timers are so far ahead at most, and farther than the bound before.
    pub(crate) ahead: Vec<(Duration, u64)>,
    pub(crate) levels: Vec<Level>,
}

/// A level of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// How much time a slot is for.
    pub(crate) slot: Duration,
    /// How many slots there are.
    pub(crate) slots: u64,
    /// How many of them hold references.
    pub(crate) occupied: u64,
    /// How many references they hold.
    pub(crate) references: u64,
}
