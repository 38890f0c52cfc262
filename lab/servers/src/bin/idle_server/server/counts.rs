//! [`Counts`], the counters of the server.

use std::sync::atomic::AtomicU64;

/// Counters of the server. Each only grows, except `live`.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicU64,
    pub(crate) live: AtomicU64,
    pub(crate) fired: AtomicU64,
    pub(crate) closed_idle: AtomicU64,
    pub(crate) panicked: AtomicU64,
}
