//! The exclusive half: one [`Sweeper`], which hands over what is due, rests in between, and keeps
//! memory in bounds.
//!
//! * [`sweeper`]: the public face, and the loop: [`Stage`](stage::Stage) by stage.
//! * [`stage`]: where a sweep is, and which references are pending.
//! * [`report`]: what it hands over and reports.
//! * [`leap`]: how long to wait for it, and leaps in virtual time.
//! * [`upkeep`]: looks after memory, in slices.
//!
//! What all others see of it is the wheel's [`progress`](super::progress).

#![forbid(unsafe_code)]

mod leap;
mod report;
mod stage;
mod sweeper;
mod upkeep;

pub use report::{Expired, SweepReport};
pub use sweeper::Sweeper;
