//! [`Partition`], the timers of a partition and the replies that it keeps.

use super::requests::{Operation, Reply};
use crate::model::clock::Millis;
use crate::model::key::Key;
use crate::model::record::Record;
use crate::store::Leasing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The time of a server's clock at the start of virtual time, 2027-01-15 08:00:00 UTC.
/// The state of a partition.
#[derive(Default)]
pub(crate) struct Partition {
    pub(crate) timers: BTreeMap<Arc<str>, Record>,
    pub(crate) due: BTreeSet<Key>,
    /// The number of the last batch of each process that changed something, and the reply.
    pub(crate) kept: BTreeMap<u64, (u64, Millis, Vec<Kept>)>,
    pub(crate) fence: u64,
}

/// A reply as it is kept. A lease is kept without its record.
pub(crate) enum Kept {
    Whole(Reply),
    Lease(Key, u64, Millis, bool),
}

impl Partition {
    pub(crate) fn held(&self, id: &str, fence: u64) -> Option<Record> {
        self.timers.get(id).filter(|found| found.fence == Some(fence)).cloned()
    }

    /// Returns a reply once more. A lease has its record, or the present state of its timer.
    pub(crate) fn again(&self, kept: &Kept) -> Reply {
        let (key, fence, now, overrun) = match kept {
            Kept::Whole(reply) => return reply.copy(),
            Kept::Lease(key, fence, now, overrun) => (key, *fence, *now, *overrun),
        };
        let leasing = match self.timers.get(&key.1) {
            None => Leasing::NotFound,
            Some(found) if found.fence != Some(fence) => {
                Leasing::NotDue { due: found.indexed(), now }
            }
            Some(found) => {
                let (due, record) = (key.0, found.clone());
                Leasing::Taken(Box::new(crate::store::Lease { fence, now, due, overrun, record }))
            }
        };
        Reply::Leased(leasing)
    }
}

impl Kept {
    pub(crate) fn of(operation: Option<&Operation>, reply: &Reply) -> Self {
        match (operation, reply) {
            (Some(Operation::Lease((_, id))), Reply::Leased(Leasing::Taken(lease))) => {
                let key = (lease.due, Arc::clone(id));
                Self::Lease(key, lease.fence, lease.now, lease.overrun)
            }
            _ => Self::Whole(reply.copy()),
        }
    }
}
