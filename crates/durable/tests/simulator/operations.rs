//! The operations of a batch on a [`Server`].

use super::partition::Partition;
use super::requests::{Operation, Reply};
use super::server::Server;
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::record::{Dead, Record};
use crate::store::partitions::idle::NOTIFY_AHEAD;
use crate::store::transitions::Ended;
use crate::store::{Cancelled, Due, Finish, Finished, Insert, Inserted, Leasing, Renewed};
use std::sync::Arc;

/// How many letters a partition may have, so that the numbers of letters name their partition.
pub(crate) const LETTERS: u64 = 1 << 32;

/// Returns the present, rounded up, so that a delay passes completely.
fn coming(now: Millis) -> Millis {
    now + 1
}

impl Server {
    /// Executes an operation on a partition at a time. Returns `true` with its reply if it has
    /// changed anything.
    pub(crate) fn apply(
        &mut self,
        partition: &mut Partition,
        operation: &Operation,
        (place, now): (u64, Millis),
    ) -> (Reply, bool) {
        match operation {
            Operation::Insert(_) if self.is_full => (Reply::Refused, false),
            Operation::Insert(timer) => self.insert(partition, timer, now),
            Operation::Cancel(id) => self.cancel(partition, id, now),
            Operation::Reset(id, due) => self.reset(partition, id, *due, now),
            Operation::RunNow(id) => self.run_now(partition, id, now),
            Operation::Pause(id, pauses) => self.pause(partition, id, *pauses, now),
            Operation::Hold(holds) => {
                partition.is_held = *holds;
                (Reply::Changed(Ok(true), 0), true)
            }
            Operation::Lease((_, id)) => self.lease(partition, id, now),
            Operation::Renew(id, fence) => self.renew(partition, id, *fence, now),
            Operation::Finish(id, fence, finish) => {
                let Some(found) = partition.held(id, *fence) else {
                    return (Reply::Finished(Finished::TooLate, None), false);
                };
                self.finish(partition, id, (found, finish), (place, now))
            }
            Operation::Redrive(number) => self.redrive(partition, *number, now),
        }
    }

    fn insert(&mut self, partition: &mut Partition, timer: &Insert, now: Millis) -> (Reply, bool) {
        let (found, coming) = (partition.timers.get(&*timer.id), coming(now));
        let inserted =
            timer.due.time(coming).and_then(|due| Record::inserted(found, timer, due, coming));
        match inserted {
            Err(error) => (Reply::Inserted(Err(error), 0), false),
            Ok((inserted, None)) => (Reply::Inserted(Ok(inserted), 0), false),
            Ok((inserted, Some(after))) => {
                // An update while an attempt runs adds a delivery.
                let had_next = found.is_some_and(|found| found.next.is_some());
                let is_new = match inserted {
                    Inserted::Updated => after.next.is_some() && !had_next,
                    inserted => inserted != Inserted::Kept,
                };
                if is_new {
                    self.audit.created(&timer.id);
                }
                let due = after.indexed();
                self.write(partition, &timer.id, Some(after), now);
                (Reply::Inserted(Ok(inserted), due), true)
            }
        }
    }

    fn cancel(&mut self, partition: &mut Partition, id: &str, now: Millis) -> (Reply, bool) {
        let Some(found) = partition.timers.get(id).cloned() else {
            return (Reply::Cancelled(Cancelled::NotFound), false);
        };
        let (cancelled, after) = found.cancelled();
        self.write(partition, id, after, now);
        (Reply::Cancelled(cancelled), true)
    }

    fn reset(
        &mut self,
        partition: &mut Partition,
        id: &str,
        due: Due,
        now: Millis,
    ) -> (Reply, bool) {
        let found = partition.timers.get(id).filter(|found| found.fence.is_none());
        let (Some(found), Ok(due)) = (found.cloned(), due.time(coming(now))) else {
            return (Reply::Changed(Ok(false), 0), false);
        };
        self.changed(partition, id, found.moved(due), now)
    }

    fn run_now(&mut self, partition: &mut Partition, id: &str, now: Millis) -> (Reply, bool) {
        let Some(mut found) = partition.timers.get(id).cloned() else {
            return (Reply::Changed(Ok(false), 0), false);
        };
        match found.order(now) {
            Err(error) => (Reply::Changed(Err(error), 0), false),
            Ok(()) => self.changed(partition, id, found, now),
        }
    }

    fn pause(
        &mut self,
        partition: &mut Partition,
        id: &str,
        pauses: bool,
        now: Millis,
    ) -> (Reply, bool) {
        let Some(mut found) = partition.timers.get(id).cloned() else {
            return (Reply::Changed(Ok(false), 0), false);
        };
        (found.paused, found.run_now) = (pauses, false);
        if pauses {
            found.return_to_plan();
        }
        self.changed(partition, id, found, now)
    }

    fn changed(
        &mut self,
        partition: &mut Partition,
        id: &str,
        after: Record,
        now: Millis,
    ) -> (Reply, bool) {
        let due = after.indexed();
        self.write(partition, id, Some(after), now);
        (Reply::Changed(Ok(true), due), true)
    }

    fn lease(&mut self, partition: &mut Partition, id: &Arc<str>, now: Millis) -> (Reply, bool) {
        let Some(found) = partition.timers.get(id) else {
            return (Reply::Leased(Leasing::NotFound), false);
        };
        let due = found.indexed();
        if due > now {
            return (Reply::Leased(Leasing::NotDue { due, now }), false);
        }
        if partition.is_held {
            return (Reply::Leased(Leasing::Paused), false);
        }
        partition.fence = (partition.fence + 1).max(now);
        let lease = found.clone().leased(partition.fence, now);
        let written = partition.written.get(id).copied().unwrap_or(0);
        self.audit.leased(id, &lease, (self.place, self.clock), written);
        self.usage.add_lease(lease.record.payload.first().copied(), now - due);
        self.write(partition, id, Some(lease.record.clone()), now);
        (Reply::Leased(Leasing::Taken(Box::new(lease))), true)
    }

    fn renew(
        &mut self,
        partition: &mut Partition,
        id: &str,
        fence: u64,
        now: Millis,
    ) -> (Reply, bool) {
        let Some(found) = partition.held(id, fence) else {
            return (Reply::Renewed(Renewed::Lost), false);
        };
        let (length, cancelled) = (found.settings.lease, found.cancelled);
        self.audit.renewed(id, &found);
        self.write(partition, id, Some(found.renewed(now)), now);
        (Reply::Renewed(Renewed::Held { length, cancelled }), true)
    }

    fn finish(
        &mut self,
        partition: &mut Partition,
        id: &str,
        (found, finish): (Record, &Finish),
        (place, now): (u64, Millis),
    ) -> (Reply, bool) {
        self.audit.finished(id, &found, finish);
        let Ended { finished, after, letter, .. } = found.finished(finish.clone(), coming(now));
        if let Some((reason, record)) = letter {
            partition.last_letter += 1;
            let number = place * LETTERS + partition.last_letter;
            let letter = Dead { id: id.to_owned(), died: now, reason, record };
            partition.letters.insert(number, letter);
            self.audit.died(id, true);
        }
        let due = after.as_ref().map(Record::indexed);
        self.write(partition, id, after, now);
        (Reply::Finished(finished, due), true)
    }

    /// Dead letter → resting (D21).
    fn redrive(&mut self, partition: &mut Partition, number: u64, now: Millis) -> (Reply, bool) {
        let Some(Dead { id, record, .. }) = partition.letters.get(&number).cloned() else {
            return (Reply::Changed(Ok(false), 0), false);
        };
        if partition.timers.contains_key(&*id) {
            return (Reply::Changed(Err(DurableError::Exists), 0), false);
        }
        partition.letters.remove(&number);
        let mut record = Record { due: now, attempt: 0, ..record };
        record.settings.time_to_live = None;
        self.audit.died(&id, false);
        self.changed(partition, &id, record, now)
    }

    /// Writes a record and its key, and publishes a key that is near. Does not publish the end of a
    /// renewed lease, which is later than the key that workers have.
    fn write(&mut self, partition: &mut Partition, id: &str, after: Option<Record>, now: Millis) {
        let key = partition.write(&Arc::from(id), after, self.world.now());
        if let Some(key) = key.filter(|key| key.0 <= now + NOTIFY_AHEAD) {
            partition.added.push(key);
        }
    }
}
