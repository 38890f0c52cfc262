//! [`Calls`], which checks that each operation has the reply that belongs to it, and one effect.

use crate::simulator::world::Nanos;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The operations of batches, by number.
#[derive(Default)]
pub(super) struct Calls {
    last: u64,
    all: BTreeMap<u64, Called>,
}

/// An operation.
struct Called {
    id: Arc<str>,
    /// The server that has executed it last, and when.
    executed: Option<(usize, Nanos)>,
    /// Set if it has changed anything.
    changed: bool,
}

impl Calls {
    /// Returns the number of a new operation.
    pub(super) fn number(&mut self, id: &str) -> u64 {
        self.last += 1;
        self.all.insert(self.last, Called { id: Arc::from(id), executed: None, changed: false });
        self.last
    }

    /// Records that a server has executed an operation. Returns what is wrong with that.
    pub(super) fn executed(
        &mut self,
        number: u64,
        server: usize,
        changed: bool,
        now: Nanos,
    ) -> Option<String> {
        let called = self.all.get_mut(&number)?;
        let twice = called.changed && changed;
        called.executed = Some((server, now));
        called.changed |= changed;
        twice.then(|| format!("an operation on {} was executed twice", called.id))
    }

    /// Checks the reply to an operation. Returns what is wrong with it.
    pub(super) fn answered(&mut self, number: u64, answered: u64) -> Option<String> {
        let called = self.all.get(&number)?;
        let id = &called.id;
        if number != answered {
            return Some(format!("an operation on {id} has the reply of another one"));
        }
        let is_early = called.executed.is_none();
        is_early.then(|| format!("an operation on {id} has a reply and was not executed"))
    }

    /// Records that a server has lost the effects of operations since a time. Returns the ids of
    /// their timers.
    pub(super) fn lost_since(&mut self, server: usize, time: Nanos) -> Vec<Arc<str>> {
        let mut ids = Vec::new();
        for called in self.all.values_mut() {
            if called.executed.is_some_and(|(by, at)| by == server && at >= time) {
                called.changed = false;
                ids.push(Arc::clone(&called.id));
            }
        }
        ids
    }
}
