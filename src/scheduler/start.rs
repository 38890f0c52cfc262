//! [`Start`]: the settings that a closure is scheduled with; and [`Observer`].

#![forbid(unsafe_code)]

use super::next_run::Schedule;
use super::rule::LastRun;
use std::sync::Arc;

/// The start of a closure, whose first event is `first`. Its rule returned that event when asked
/// with `last`.
pub(super) struct Start {
    pub(super) first: Schedule,
    pub(super) last: LastRun,
    pub(super) repeats: bool,
    pub(super) observer: Option<Arc<dyn Observer>>,
}

/// An observer of a closure. It is notified, with no lock held, when no run is in progress. If
/// `stopped` is `true`, no run will follow, because the closure was cancelled or was shut down
/// before its next run. Implementations must not panic.
pub(super) trait Observer: Send + Sync {
    /// Called when no run is in progress.
    fn on_idle(&self, stopped: bool);
}
