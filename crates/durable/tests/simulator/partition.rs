//! [`Partition`], the timers of a partition and the replies that it keeps.

use super::requests::{Answered, Operation, Reply};
use super::world::Nanos;
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::{Dead, Record};
use crate::store::{Lease, Leasing};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state of a partition.
#[derive(Clone, Default)]
pub(crate) struct Partition {
    pub(crate) timers: BTreeMap<Arc<str>, Record>,
    pub(crate) due: BTreeSet<Key>,
    /// The near keys that the batch which is being executed has added.
    pub(crate) added: Vec<Key>,
    /// When the key of a timer was written, in the time of the world.
    pub(crate) written: BTreeMap<Arc<str>, Nanos>,
    /// The number of the last batch of each process that changed something, and the reply.
    pub(crate) kept: BTreeMap<u64, (u64, Millis, Vec<Kept>)>,
    pub(crate) fence: u64,
    /// Set while it grants no lease.
    pub(crate) is_held: bool,
    /// The dead letters, by number.
    pub(crate) letters: BTreeMap<u64, Dead>,
    /// The number of dead letters so far.
    pub(crate) last_letter: u64,
}

/// A reply to a call as it is kept.
#[derive(Clone)]
pub(crate) struct Kept {
    number: u64,
    reply: KeptReply,
}

/// A reply as it is kept. A lease is kept without its record.
enum KeptReply {
    Whole(Reply),
    Lease { key: Key, fence: u64, now: Millis, overrun: bool },
}

impl Partition {
    pub(crate) fn held(&self, id: &str, fence: u64) -> Option<Record> {
        self.timers.get(id).filter(|found| found.fence == Some(fence)).cloned()
    }

    /// Returns a reply once more. A lease has its record, or the present state of its timer.
    pub(crate) fn again(&self, kept: &Kept) -> Answered {
        let number = kept.number;
        let (key, fence, now, overrun) = match &kept.reply {
            KeptReply::Whole(reply) => return Answered { number, reply: reply.copy() },
            KeptReply::Lease { key, fence, now, overrun } => (key, *fence, *now, *overrun),
        };
        let leasing = match self.timers.get(&key.1) {
            None => Leasing::NotFound,
            Some(found) if found.fence != Some(fence) => {
                Leasing::NotDue { due: found.indexed(), now }
            }
            Some(found) => {
                let (due, record) = (key.0, found.clone());
                Leasing::Taken(Box::new(Lease { fence, now, due, overrun, record }))
            }
        };
        Answered { number, reply: Reply::Leased(leasing) }
    }

    /// Writes the record of a timer and its key. Returns the key, unless the end of a lease was
    /// moved to a later time than the key that workers have.
    pub(crate) fn write(
        &mut self,
        id: &Arc<str>,
        after: Option<Record>,
        written: Nanos,
    ) -> Option<Key> {
        let before = self.timers.remove(id);
        let renewed = before.as_ref().zip(after.as_ref()).is_some_and(|(before, after)| {
            before.fence.is_some() && before.fence == after.fence && before.due <= after.due
        });
        if let Some(before) = before {
            self.due.remove(&(before.indexed(), Arc::clone(id)));
        }
        let Some(after) = after else {
            self.written.remove(id);
            return None;
        };
        let key = (after.indexed(), Arc::clone(id));
        self.due.insert(key.clone());
        self.timers.insert(Arc::clone(id), after);
        self.written.insert(Arc::clone(id), written);
        (!renewed).then_some(key)
    }
}

impl Kept {
    pub(crate) fn of(operation: Option<&Operation>, answered: &Answered) -> Self {
        let reply = match (operation, &answered.reply) {
            (Some(Operation::Lease((_, id))), Reply::Leased(Leasing::Taken(lease))) => {
                let Lease { fence, now, overrun, due, .. } = **lease;
                KeptReply::Lease { key: (due, Arc::clone(id)), fence, now, overrun }
            }
            (_, reply) => KeptReply::Whole(reply.copy()),
        };
        Self { number: answered.number, reply }
    }
}

impl Clone for KeptReply {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(reply) => Self::Whole(reply.copy()),
            Self::Lease { key, fence, now, overrun } => {
                Self::Lease { key: key.clone(), fence: *fence, now: *now, overrun: *overrun }
            }
        }
    }
}
