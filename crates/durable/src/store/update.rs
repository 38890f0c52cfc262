//! [`Record::updated`], the effect of [`Existing::Update`](crate::Existing::Update) (D6 of
//! `docs/DESIGN.md`).

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use crate::model::record::Record;
use crate::model::rule::Rule;
use crate::store::{Due, Insert};

impl Record {
    /// Creates the record of a new timer that is due at `due`.
    pub(crate) fn new(timer: &Insert, due: Millis) -> Self {
        Self::resting(due, timer.settings.clone(), timer.payload.to_vec())
    }

    /// Returns the record after an update at `now` whose time is `due` if it changes the time. A
    /// delivery that has begun ends first.
    pub(crate) fn updated(&self, timer: &Insert, due: Millis, now: Millis) -> Self {
        let new = Self::new(timer, due);
        let (settings, payload) = (new.settings.clone(), new.payload.clone());
        let mut after = self.clone();
        if !self.cancelled {
            (after.settings, after.payload) = (settings, payload);
        }
        let current = self.next.as_deref().unwrap_or(self);
        // A timer that was cancelled ends with its attempt.
        if !current.cancelled && current.has_time_of(timer, now) {
            if let Some(next) = &mut after.next {
                (next.settings, next.payload) = (new.settings, new.payload);
            }
        } else if self.fence.is_some() || self.next.is_some() {
            (after.next, after.plan) = (Some(Box::new(new)), None);
        } else {
            after = Self { paused: self.paused, ..new };
        }
        after
    }

    /// Returns `true` if an update does not change the time of this delivery, or of its plan.
    fn has_time_of(&self, timer: &Insert, now: Millis) -> bool {
        let planned = self.plan.unwrap_or(self.planned);
        match timer.due {
            // A time beyond the next time of a cron expression was planned when the clock was
            // ahead. The next one is still to come, unless it passed since it was computed and was
            // delivered. An interval may begin later.
            Due::ByRule(next) => {
                let rule = &self.settings.rule;
                let is_ahead = matches!(rule, Some(Rule::Cron { .. })) && planned > next;
                *rule == timer.settings.rule && !(is_ahead && next > now)
            }
            Due::At(time) => planned == time,
            Due::After(_) => false,
        }
    }
}
