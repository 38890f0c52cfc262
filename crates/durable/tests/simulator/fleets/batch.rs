//! [`BatchScript`], which counts the commands of a batch (`batch.lua`).

use super::commands::{is_empty, slice};
use crate::model::clock::Millis;
use crate::model::options::Existing;
use crate::model::record::Record;
use crate::simulator::partition::Partition;
use crate::simulator::requests::{Call, Operation};
use crate::store::Finish;
use std::collections::BTreeSet;

/// The commands of a batch so far, and the state that determines its last commands.
#[derive(Default)]
pub(crate) struct BatchScript {
    commands: u64,
    /// Set once the batch has changed anything.
    changed: bool,
    timers: i64,
    leases: i64,
    has_fence: bool,
    retries: bool,
    added: BTreeSet<Millis>,
    left: BTreeSet<Millis>,
}

/// The key and the lease of a timer.
#[derive(Clone, Copy)]
pub(crate) struct TimerState {
    due: Millis,
    is_leased: bool,
}

impl TimerState {
    /// Returns the state of the timer of an operation, if it exists.
    pub(crate) fn of(partition: &Partition, call: Option<&Call>) -> Option<Self> {
        let record = partition.timers.get(call?.operation.id().1)?;
        Some(Self::from(record))
    }
}

impl From<&Record> for TimerState {
    fn from(record: &Record) -> Self {
        Self { due: record.indexed(), is_leased: record.fence.is_some() }
    }
}

impl BatchScript {
    /// Counts the commands of an operation, from the state of its timer before and after it and the
    /// number of published notices.
    pub(crate) fn count(
        &mut self,
        operation: &Operation,
        (before, after): (Option<TimerState>, Option<TimerState>),
        changes: bool,
        published: usize,
    ) {
        let reads = match operation {
            Operation::Insert(timer) => u64::from(timer.existing != Existing::Refuse),
            Operation::Redrive(_) => 2,
            _ => 1,
        };
        self.commands += reads + published as u64;
        if matches!(operation, Operation::Lease(_)) && changes && !self.has_fence {
            (self.has_fence, self.commands) = (true, self.commands + 1);
        }
        self.retries |= matches!(operation, Operation::Finish(_, _, Finish::Retry { .. }));
        if changes {
            self.change(operation, before, after);
        }
    }

    fn change(
        &mut self,
        operation: &Operation,
        before: Option<TimerState>,
        after: Option<TimerState>,
    ) {
        if matches!(operation, Operation::Finish(_, _, Finish::Dead { .. })) {
            // The number of the letter, the keys of letters, and four writes.
            self.commands += 6;
        }
        match (before, after) {
            (None, None) => {}
            (None, Some(after)) => {
                let letter = if matches!(operation, Operation::Redrive(_)) { 4 } else { 0 };
                self.commands += 2 + letter;
                self.added.insert(slice(after.due));
                self.timers += 1;
            }
            (Some(before), None) => {
                self.commands += 2;
                self.left.insert(slice(before.due));
                self.timers -= 1;
                self.leases -= i64::from(before.is_leased);
            }
            (Some(before), Some(after)) => {
                self.commands += 1;
                // A cancel of a timer that is leased does not move its key.
                if !matches!(operation, Operation::Cancel(_)) {
                    self.move_key(before.due, after.due);
                }
                self.leases += i64::from(after.is_leased) - i64::from(before.is_leased);
            }
        }
        self.changed = true;
    }

    fn move_key(&mut self, before: Millis, after: Millis) {
        let (from, to) = (slice(before), slice(after));
        if from == to {
            self.commands += 1 + u64::from(!self.changed);
        } else {
            self.commands += 3;
            self.left.insert(from);
            self.added.insert(to);
        }
    }

    /// Returns the commands of the whole batch on a partition. The partition keeps the reply if the
    /// batch changed anything or has to settle. `is_first` is set for the first reply that it keeps
    /// for a process.
    pub(crate) fn finished(self, partition: &Partition, settle: bool, is_first: bool) -> u64 {
        // The call, `TIME`, and the last reply.
        let commands = 3 + self.commands;
        if !self.changed && !settle {
            return commands + 1;
        }
        let empty = self.left.iter().filter(|number| is_empty(&partition.due, **number));
        let empty = empty.count() as u64;
        let removals = match (self.left.len() as u64, empty) {
            (0, _) => 0,
            (_, 0) => 1,
            (left, empty) => 1 + left + empty,
        };
        let counters = u64::from(self.timers != 0)
            + u64::from(self.leases != 0)
            + u64::from(self.has_fence)
            + 2 * u64::from(self.retries);
        let index = u64::from(!self.added.is_empty());
        let ages = if is_first { 2 } else { 0 };
        commands + u64::from(!self.changed) + counters + index + removals + 1 + ages
    }
}
