//! The model of a timer: its record, options, rule and key, and the reports about it. Nothing here
//! depends on a store.

#![forbid(unsafe_code)]

pub(crate) mod backoff;
pub(crate) mod bounds;
pub(crate) mod check;
pub(crate) mod clock;
pub(crate) mod condition;
pub(crate) mod durability;
pub(crate) mod event;
pub(crate) mod json;
pub(crate) mod key;
pub(crate) mod label;
#[cfg(feature = "log")]
pub(crate) mod log;
pub(crate) mod options;
pub(crate) mod record;
pub(crate) mod rule;
pub(crate) mod stats;
pub(crate) mod verdict;
