//! The figures of a wheel that the dashboard shows. They travel as one line of JSON per snapshot,
//! which `endpoint.rs` writes and `heard.rs` reads.

use std::time::Duration;

/// A wheel at one instant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    /// The time since the endpoint was opened.
    pub(crate) at: Duration,
    pub(crate) armed: u64,
    pub(crate) inserted: u64,
    pub(crate) reset: u64,
    pub(crate) cancelled: u64,
    pub(crate) fired: u64,
    pub(crate) stale: u64,
    pub(crate) bytes: u64,
    pub(crate) longest_sweep: Duration,
    /// The upper bounds of the lateness of half of the fired timers, of 99 in 100, and of all.
    pub(crate) late: [Duration; 3],
    /// The number of timers up to each distance ahead, and beyond the distance before it.
    pub(crate) ahead: Vec<(Duration, u64)>,
}
