//! [`OwnedClosure`]: a closure that runs no more when its owner is gone.

#![forbid(unsafe_code)]

use super::handle::Scheduled;

/// A closure that is cancelled when this is dropped; made by [`Scheduled::own`].
///
/// A run that is under way goes on to its end.
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
    let_go: bool,
}

impl Scheduled {
    /// The owner of this closure, which cancels it when it is dropped.
    pub fn own(self) -> OwnedClosure {
        OwnedClosure { scheduled: self, let_go: false }
    }
}

impl OwnedClosure {
    /// Returns the handle of the closure.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// Lets the closure go on without an owner. Returns its handle.
    #[must_use = "the closure has no owner any more"]
    pub fn into_scheduled(mut self) -> Scheduled {
        self.let_go = true;
        self.scheduled.clone()
    }
}

impl Drop for OwnedClosure {
    fn drop(&mut self) {
        if !self.let_go {
            let _ = self.scheduled.cancel();
        }
    }
}
