//! [`Key`]: where a timer rests in the order of time; keys that were loaded, and what has changed
//! of them.

#![forbid(unsafe_code)]

use super::clock::Millis;
use std::sync::Arc;

/// Where a timer rests: by its due time, then by its id.
pub(super) type Key = (Millis, Arc<str>);

/// The first key that there can be from that time on.
pub(super) fn first_from(due: Millis) -> Key {
    (due, Arc::from(""))
}

/// Keys that were loaded.
#[derive(Debug)]
pub(super) struct Page {
    /// The store's clock.
    pub(super) now: Millis,
    /// How far was looked, at most as far as was asked for.
    pub(super) until: Millis,
    pub(super) keys: Vec<Key>,
    /// Set if there may be more: the limit was reached.
    pub(super) more: bool,
    /// A key that did not come after the one before it: one of the two is damaged.
    pub(super) misplaced: Option<Key>,
}

/// A change of the key of one timer.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) removed: Option<Key>,
    pub(super) added: Option<Key>,
}
