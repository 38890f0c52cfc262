//! [`Tracked`], what is known about a timer. Each change returns the promise that it violates.

use crate::model::clock::system;
use crate::model::record::Record;
use crate::simulator::world::{MILLISECOND, Nanos};
use crate::store::Finish;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// How far the clocks of a worker and a server drift apart during a lease.
const DRIFTED: Nanos = 5 * MILLISECOND;

/// The state of a timer as the audit knows it.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    /// Set once a server has lost a change of it.
    pub(super) excused: bool,
    inserted: bool,
    /// Set once a caller has learned that it was removed.
    removed: bool,
    cancelled: bool,
    repeats: bool,
    /// The number of deliveries that were created, and of those that were acknowledged in the
    /// store.
    created: u32,
    done: u32,
    /// The planned times that were acknowledged to workers.
    reported: BTreeSet<SystemTime>,
    /// The planned times and numbers of the attempts that have begun and were not given back.
    begun: BTreeSet<(SystemTime, u32)>,
    dead: bool,
    /// When the lease of each attempt ends, as far as the store has renewed it.
    leases: BTreeMap<(SystemTime, u32), Nanos>,
}

impl Tracked {
    /// Returns `true` if the timer must still be in the store.
    pub(super) fn is_lost(&self) -> bool {
        let has_ended = self.done > 0 || self.dead || self.cancelled;
        self.inserted && !has_ended && !self.excused
    }

    pub(super) fn created(&mut self) -> Option<&'static str> {
        self.created += 1;
        None
    }

    pub(super) fn finished(&mut self, record: &Record, finish: &Finish) -> Option<&'static str> {
        self.repeats |= record.settings.rule.is_some();
        match finish {
            Finish::Done { .. } => self.done += 1,
            Finish::Retry { counted: false, .. } => {
                self.begun.remove(&(system(record.planned), record.attempt));
            }
            _ => {}
        }
        let twice = self.done > self.created && !self.repeats;
        twice.then_some("was acknowledged twice")
    }

    pub(super) fn died(&mut self, died: bool) -> Option<&'static str> {
        self.dead = died;
        if !died {
            // It is there again, and its attempts are counted from the start.
            self.removed = false;
            self.begun.clear();
        }
        None
    }

    pub(super) fn inserts(&mut self) -> Option<&'static str> {
        self.removed = false;
        None
    }

    pub(super) fn inserted(&mut self) -> Option<&'static str> {
        self.inserted = true;
        None
    }

    pub(super) fn cancelled(&mut self, removed: bool) -> Option<&'static str> {
        (self.cancelled, self.removed) = (true, removed);
        let late = removed && self.done >= self.created && !self.repeats;
        late.then_some("was removed after it was acknowledged")
    }

    pub(super) fn reported(&mut self, planned: SystemTime) -> Option<&'static str> {
        let twice = !self.reported.insert(planned);
        twice.then_some("was acknowledged to two workers")
    }

    /// The store has granted or renewed a lease until a time.
    pub(super) fn leased(&mut self, record: &Record, now: Nanos) -> Option<&'static str> {
        let until = now + record.settings.lease * MILLISECOND;
        self.leases.insert((system(record.planned), record.attempt), until);
        None
    }

    pub(super) fn begun(
        &mut self,
        planned: SystemTime,
        attempt: u32,
        now: Nanos,
    ) -> Option<&'static str> {
        if self.has_run_out(planned, attempt, now) {
            return Some("begins although its lease has run out");
        }
        if !self.begun.insert((planned, attempt)) {
            return Some("begins an attempt twice");
        }
        self.removed.then_some("begins although it was removed")
    }

    pub(super) fn ended(
        &mut self,
        planned: SystemTime,
        attempt: u32,
        now: Nanos,
    ) -> Option<&'static str> {
        let late = self.has_run_out(planned, attempt, now);
        late.then_some("has run for longer than its lease")
    }

    fn has_run_out(&self, planned: SystemTime, attempt: u32, now: Nanos) -> bool {
        self.leases.get(&(planned, attempt)).is_some_and(|until| now > until + DRIFTED)
    }
}
