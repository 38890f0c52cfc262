//! [`all`]: the systems that are compared, the role of each, and its measurements.

use crate::herd::longest;
use crate::measure::{Taken, measure};
use crate::system::System;
use crate::systems;
use crate::workload::Workload;
use serde::{Serialize, Serializer};

/// The role of a system in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Tourbillon, in this mode.
    Ours(&'static str),
    /// A system that supports every workload, for comparison with tourbillon.
    Rival,
    /// A system that does not support every workload. It is shown beside the others.
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
        timer::<systems::tourbillon::Plain>(Role::Ours("plain")),
        timer::<systems::tourbillon::Batched>(Role::Ours("pinned")),
        timer::<systems::tokio::Tokio>(Role::Rival),
        #[cfg(tokio_unstable)]
        timer::<systems::tokio_alt::Alternative>(Role::Rival),
        timer::<systems::delay_queue::Locked>(Role::Rival),
        timer::<systems::nexus::Sharded>(Role::Rival),
        timer::<systems::heap::Locked>(Role::Rival),
        timer::<systems::async_io::Reactor>(Role::Rival),
        timer::<systems::pingora::Pingora>(Role::Other),
        timer::<systems::hhwt::Threaded>(Role::Other),
        timer::<systems::floor::Entries<systems::floor::Bare>>(Role::Floor),
        timer::<systems::floor::Entries<systems::floor::Padded>>(Role::Floor),
        timer::<systems::floor::Entries<systems::floor::Clocked>>(Role::Floor),
        timer::<systems::floor::Vectors>(Role::Floor),
    ]
}

fn timer<S: System>(role: Role) -> Timer {
    Timer { name: S::NAME, role, can: S::can, measure: measure::<S>, longest: longest::<S> }
}
