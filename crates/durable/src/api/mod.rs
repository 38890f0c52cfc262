//! The types that users call, [`DurableTimers`](timers::DurableTimers) and its
//! [`Worker`](worker::Worker).

#![forbid(unsafe_code)]

pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod dead_letters;
pub(crate) mod labels;
pub(crate) mod lists;
#[cfg(feature = "log")]
pub(crate) mod log;
pub(crate) mod pause;
pub(crate) mod timer;
pub(crate) mod timers;
pub(crate) mod worker;
