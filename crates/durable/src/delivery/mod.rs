//! The path of a due timer from its store to the handler, and the outcome of the attempt.

#![forbid(unsafe_code)]

pub(crate) mod attempt;
#[cfg(feature = "metrics")]
pub(crate) mod export;
pub(crate) mod feed;
pub(crate) mod lease;
#[cfg(feature = "log")]
pub(crate) mod log;
pub(crate) mod permits;
pub(crate) mod ready;
pub(crate) mod report;
pub(crate) mod trace;
pub(crate) mod trim;
