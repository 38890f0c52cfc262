//! [`Record::ordered`], the effect of [`DurableTimers::run_now`](crate::DurableTimers::run_now)
//! (D27 of `docs/DESIGN.md`).

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::record::Record;

impl Record {
    /// Returns the record after an order to run at `now`. It is unchanged if the timer is due
    /// already, so a second order adds no delivery.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Running`] if the timer is leased.
    pub(crate) fn ordered(&self, now: Millis) -> Result<Self, DurableError> {
        if self.fence.is_some() {
            return Err(DurableError::Running);
        }
        if self.indexed() <= now {
            return Ok(self.clone());
        }
        let due = self.due.min(now);
        let at_once = Self { due, run_now: self.paused, ..self.clone() };
        if self.attempt > 0 || self.due != self.planned {
            // The delivery has begun, so this is its next attempt.
            return Ok(at_once);
        }
        let mut new = Self { due: now, planned: now, ..at_once };
        if self.settings.rule.is_some() && self.next.is_none() {
            // The plan of a repetition stays, and follows the delivery that is made now.
            new.next = Some(Box::new(Self { paused: false, run_now: false, ..self.clone() }));
        }
        Ok(new)
    }
}
