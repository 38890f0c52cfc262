//! The exclusive half: one [`Sweeper`], which hands over what is due, rests in between, and keeps
//! memory in bounds.
//!
//! * [`sweeper`]: the public face, and the loop: [`Stage`](stage::Stage) by stage.
//! * [`stage`]: where a sweep is, and what it has in hand.
//! * [`swept`]: how far it has come, which inserters look at. [`alarm`]: until when it rests.
//!   [`front`] holds both, with its counts, for all to read.
//! * [`flag`]: whether memory is to be looked after. [`upkeep`] does that, in slices.

#![forbid(unsafe_code)]

pub(crate) mod alarm;
pub(crate) mod flag;
pub(crate) mod front;
mod stage;
mod sweeper;
pub(crate) mod swept;
mod upkeep;

pub use sweeper::{Expired, Sweep, Sweeper};
