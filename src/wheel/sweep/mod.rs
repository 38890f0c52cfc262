//! The exclusive half: the [`Sweeper`], which hands over due timers, rests in between, and keeps
//! memory in bounds.
//!
//! * [`sweeper`] has the public type and the main loop, one [`Stage`](stage::Stage) after another.
//! * [`stage`] has the position of a sweep and the pending references.
//! * [`agenda`] has what is due in each shard.
//! * [`report`] has the results of a sweep.
//! * [`leap`] has the time to wait, and leaps in virtual time.
//! * [`upkeep`] takes care of memory, in slices.
//!
//! All other modules see only its [`progress`](super::progress).

#![forbid(unsafe_code)]

mod agenda;
mod leap;
mod report;
mod stage;
mod sweeper;
mod upkeep;

pub use report::{Expired, SweepReport};
pub use sweeper::Sweeper;
