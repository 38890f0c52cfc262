//! Wheels in forked child processes, which are closed there if their sweeper is on a thread of the
//! parent.

#![forbid(unsafe_code)]

use crate::sync::{Arc, AtomicBool, Flagged, Process, SetInChild};
use crate::wheel::shared::Shared;
use crate::wheel::wheel::Wheel;

/// Closes a wheel in every child process that is forked while this value exists.
pub(crate) type ClosedInChildren<T> = SetInChild<Shared<T>>;

impl<T> Wheel<T> {
    /// Closes the wheel in every child process that is forked while the returned value exists. This
    /// is for a wheel whose sweeper runs on a thread of `process`, which its children do not have.
    pub(crate) fn close_in_children(&self, process: Process) -> ClosedInChildren<T> {
        SetInChild::new(Arc::clone(&self.shared), process)
    }
}

impl<T> Flagged for Shared<T> {
    fn flag(&self) -> &AtomicBool {
        self.engine.closed()
    }
}
