//! The systems that are compared, one file each, behind one trait.
//!
//! A system starts empty and allocates memory as timers are armed. A caller keeps a handle for each
//! of its timers at the timer's place, which is also the timer's value.

mod async_io;
mod delay_queue;
mod floor;
mod heap;
mod hhwt;
mod nexus;
mod pingora;
mod tokio;
#[cfg(tokio_unstable)]
mod tokio_alt;
mod tourbillon;

use crate::herd::longest;
use crate::measure::{Taken, measure};
use crate::workload::{Move, Workload};
use serde::{Serialize, Serializer};
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

/// The role of a system in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Tourbillon, in this mode.
    Ours(&'static str),
    /// A system that supports every workload, with which tourbillon is compared.
    Rival,
    /// A system that does not. It is shown beside the others.
    Other,
    /// No timer, but the memory accesses of one.
    Floor,
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Role::Ours(mode) => mode,
            Role::Rival => "rival",
            Role::Other => "other",
            Role::Floor => "floor",
        })
    }
}

/// A system and its measurements.
#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) name: &'static str,
    pub(crate) role: Role,
    pub(crate) can: fn(Workload) -> bool,
    pub(crate) measure: fn(Workload, u32, u32) -> Taken,
    pub(crate) longest: fn(u32) -> Vec<f64>,
}

/// All systems that are compared.
pub(crate) fn all() -> Vec<Timer> {
    vec![
        timer::<tourbillon::Plain>(Role::Ours("plain")),
        timer::<tourbillon::Batched>(Role::Ours("pinned")),
        timer::<tokio::Tokio>(Role::Rival),
        #[cfg(tokio_unstable)]
        timer::<tokio_alt::Alternative>(Role::Rival),
        timer::<delay_queue::Locked>(Role::Rival),
        timer::<nexus::Sharded>(Role::Rival),
        timer::<heap::Locked>(Role::Rival),
        timer::<async_io::Reactor>(Role::Rival),
        timer::<pingora::Pingora>(Role::Other),
        timer::<hhwt::Threaded>(Role::Other),
        timer::<floor::Entries<false>>(Role::Floor),
        timer::<floor::Entries<true>>(Role::Floor),
        timer::<floor::Vectors>(Role::Floor),
    ]
}

fn timer<S: System>(role: Role) -> Timer {
    Timer { name: S::NAME, role, can: S::can, measure: measure::<S>, longest: longest::<S> }
}
