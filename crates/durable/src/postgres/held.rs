//! [`HeldIds`], the ids that operations wait for.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The ids that operations wait for because another transaction has inserted or locked them.
/// Further inserts of such an id are sent in the lane [`HELD`](super::operation::HELD).
#[derive(Default)]
pub(super) struct HeldIds(Mutex<BTreeMap<String, usize>>);

impl HeldIds {
    /// Returns `true` if an operation waits for this id.
    pub(super) fn has(&self, id: &str) -> bool {
        ignore_poison(self.0.lock()).contains_key(id)
    }

    /// Counts an operation that waits for this id, until the returned value is dropped.
    pub(super) fn wait(&self, id: &str) -> HeldId<'_> {
        *ignore_poison(self.0.lock()).entry(id.to_owned()).or_default() += 1;
        HeldId { ids: self, id: id.to_owned() }
    }
}

/// An operation that waits for an id.
pub(super) struct HeldId<'a> {
    ids: &'a HeldIds,
    id: String,
}

impl Drop for HeldId<'_> {
    fn drop(&mut self) {
        let mut ids = ignore_poison(self.ids.0.lock());
        if let Some(count) = ids.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                ids.remove(&self.id);
            }
        }
    }
}
