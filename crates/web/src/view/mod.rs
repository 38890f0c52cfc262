//! The parts of pages. All values are escaped.

#![forbid(unsafe_code)]

pub(crate) mod chart;
pub(crate) mod frame;
pub(crate) mod parts;
pub(crate) mod runs;
pub(crate) mod timers;
