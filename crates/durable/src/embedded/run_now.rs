//! Orders, the effect of [`DurableTimers::run_now`](crate::DurableTimers::run_now) on a record.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::record::Record;

impl Record {
    /// Orders an attempt at `now` (D27 of `docs/DESIGN.md`). A timer that is due already is
    /// unchanged, so a second order adds no delivery.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Running`] if the timer is leased.
    pub(super) fn order(&mut self, now: Millis) -> Result<(), DurableError> {
        if self.fence.is_some() {
            return Err(DurableError::Running);
        }
        if self.indexed() <= now {
            return Ok(());
        }
        self.run_now = self.paused;
        if self.attempt > 0 || self.due != self.planned {
            // The delivery has begun, so this is its next attempt.
            self.due = self.due.min(now);
        } else {
            self.plan = self.plan.or(Some(self.planned)).filter(|_| self.next.is_none());
            (self.due, self.planned) = (now, now);
        }
        Ok(())
    }

    /// Returns the delivery to its plan, unless its attempt is running or an attempt has counted.
    pub(super) fn return_to_plan(&mut self) {
        if self.attempt == 0
            && self.fence.is_none()
            && let Some(plan) = self.plan.take()
        {
            (self.due, self.planned) = (plan, plan);
        }
    }
}
