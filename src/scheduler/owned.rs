//! [`OwnedClosure`]: a closure that is cancelled when its owner is dropped.

#![forbid(unsafe_code)]

use super::handle::Scheduled;

/// Cancels a closure when it is dropped. Created by [`Scheduled::own`].
///
/// A run in progress continues to its end.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Ending, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let hourly = scheduler.every(Duration::from_secs(3600)).run(|| println!("an hour"))?;
/// let report = hourly.clone().own();
/// assert!(report.scheduled().next_run().is_some());
/// drop(report);
/// assert_eq!(hourly.ending(), Some(Ending::Cancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it cancels the closure"]
pub struct OwnedClosure {
    scheduled: Scheduled,
    released: bool,
}

impl Scheduled {
    /// Converts this handle into an owner, which cancels the closure when it is dropped.
    pub fn own(self) -> OwnedClosure {
        OwnedClosure { scheduled: self, released: false }
    }
}

impl OwnedClosure {
    /// Returns the handle of the closure.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// Releases the closure, which then continues without an owner, and returns its handle.
    #[must_use = "the closure has no owner any more"]
    pub fn into_scheduled(mut self) -> Scheduled {
        self.released = true;
        self.scheduled.clone()
    }
}

impl Drop for OwnedClosure {
    fn drop(&mut self) {
        if !self.released {
            let _ = self.scheduled.cancel();
        }
    }
}
