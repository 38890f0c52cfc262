//! The transitions of one timer's record, as `docs/DESIGN.md` numbers them. A store in a file
//! writes the records to its tables. Scripts in Lua and functions in SQL have the same transitions.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::model::clock::{LATEST, Millis};
use crate::model::condition::Condition;
use crate::model::options::Existing;
use crate::model::record::{DeadReason, Record};
use crate::store::{Cancelled, Finish, Finished, Insert, Inserted, Lease};

/// The effect of the end of a lease.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) finished: Finished,
    /// The record afterwards, or `None` if nothing remains.
    pub(crate) after: Option<Record>,
    /// Set if the attempt is to be followed by another one, when the record is due.
    pub(crate) is_retry: bool,
    /// The reason and the record of a dead letter.
    pub(crate) letter: Option<(DeadReason, Record)>,
}

impl Record {
    /// Nothing → resting (D1). If the id exists, the chosen policy decides: the timer is kept (D2),
    /// refused (D4), replaced (D5) or updated (D6). A timer that is kept but may end with its
    /// running attempt gets the new one as its next delivery (D3). Returns no record if it is
    /// unchanged.
    pub(crate) fn inserted(
        found: Option<&Self>,
        timer: &Insert,
        due: Millis,
        now: Millis,
    ) -> Result<(Inserted, Option<Self>), DurableError> {
        Condition::check(timer.over.as_ref(), found)?;
        let new = || Self::new(timer, due);
        let (inserted, after) = match (found, timer.existing) {
            (None, _) => (Inserted::New, new()),
            (Some(found), Existing::Keep) if found.is_kept(due) => {
                return Ok((Inserted::Kept, None));
            }
            (Some(found), Existing::Keep) => {
                (Inserted::Next, Self { next: Some(Box::new(new())), plan: None, ..found.clone() })
            }
            (Some(found), Existing::Update) => (Inserted::Updated, found.updated(timer, due, now)),
            (Some(_), Existing::Refuse) => return Err(DurableError::Exists),
            (Some(_), Existing::Replace) => (Inserted::Replaced, new()),
        };
        Ok((inserted, Some(after)))
    }

    /// Returns `true` if the timer outlives its running attempt, or is already planned for `due`.
    fn is_kept(&self, due: Millis) -> bool {
        let repeats = self.settings.rule.is_some() || self.next.is_some();
        self.fence.is_none() || repeats || (self.planned == due && !self.cancelled)
    }

    /// Resting → nothing (D7). Leased → leased and cancelled, without its repetition rule and its
    /// next delivery (D8).
    pub(crate) fn cancelled(mut self) -> (Cancelled, Option<Self>) {
        if self.fence.is_none() {
            return (Cancelled::Removed, None);
        }
        (self.settings.rule, self.plan) = (None, None);
        (self.next, self.cancelled) = (None, true);
        (Cancelled::Running, Some(self))
    }

    /// Resting → resting with another due and planned time, no attempts and no order (D9).
    pub(crate) fn moved(self, due: Millis) -> Self {
        let (planned, attempt, error) = (due, 0, String::new());
        let (plan, run_now) = (None, false);
        Self { due, planned, plan, attempt, error, run_now, ..self }
    }

    /// Orders an attempt at `now` (D27). A timer that is due already is
    /// unchanged, so a second order adds no delivery.
    ///
    /// # Errors
    ///
    /// Fails with [`DurableError::Running`] if the timer is leased.
    pub(crate) fn order(&mut self, now: Millis) -> Result<(), DurableError> {
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
    pub(crate) fn return_to_plan(&mut self) {
        if self.attempt == 0
            && self.fence.is_none()
            && let Some(plan) = self.plan.take()
        {
            (self.due, self.planned) = (plan, plan);
        }
    }

    /// Resting and due → leased, with one more attempt (D13). Leased with an expired lease → leased
    /// again (D14).
    pub(crate) fn leased(mut self, fence: u64, now: Millis) -> Lease {
        let due = self.indexed();
        let overrun = self.fence.replace(fence).is_some();
        self.attempt = self.attempt.saturating_add(u32::from(!overrun));
        self.due = now.saturating_add(self.settings.lease);
        Lease { fence, now, due, overrun, record: self }
    }

    /// Leased → leased for as long again, from now on (D15).
    pub(crate) fn renewed(self, now: Millis) -> Self {
        Self { due: now.saturating_add(self.settings.lease), ..self }
    }

    /// Leased → the next delivery, which was inserted meanwhile or belongs to the repetition, or
    /// nothing (D16). A failed attempt leads to a retry (D17) or a dead letter (D18). A cancelled
    /// timer that is not done has no other attempt and becomes no letter (D19).
    pub(crate) fn finished(mut self, finish: Finish, now: Millis) -> Ended {
        // A cancel in the meantime has ended the repetition.
        let repeats = self.settings.rule.is_some();
        let (mut finished, mut letter) = (Finished::Accepted, None);
        let planned = match finish {
            Finish::Done { next } => next,
            _ if self.cancelled => {
                finished = Finished::Cancelled;
                None
            }
            Finish::Retry { wait, error, counted } => {
                self.attempt = self.attempt.saturating_sub(u32::from(!counted));
                self.run_now &= !counted;
                self.due = now.saturating_add(wait).min(LATEST);
                (self.fence, self.error) = (None, error);
                return Ended { finished, after: Some(self), is_retry: true, letter };
            }
            Finish::Dead { reason, error, next } => {
                letter = Some((reason, self.letter(reason, error)));
                next
            }
        };
        let paused = self.paused && !self.cancelled;
        let next = self.next.take().map(|next| Self { paused, ..*next });
        let after = next.or_else(|| {
            let due = planned.filter(|_| repeats)?;
            let resting = Self::resting(due, self.settings, self.payload);
            Some(Self { paused, ..resting })
        });
        Ended { finished, after, is_retry: false, letter }
    }

    /// Returns the record of a dead letter.
    fn letter(&self, reason: DeadReason, error: String) -> Self {
        let resting = Self::resting(self.due, self.settings.clone(), self.payload.clone());
        let (planned, attempt) = (self.planned, self.attempt);
        let mut record = Self { planned, attempt, error, ..resting };
        if reason != DeadReason::Rule {
            // The repetition continues without this delivery.
            record.settings.rule = None;
        }
        record
    }
}
