//! [`Key`], the position of a timer in the order of due times, with pages of loaded keys and
//! changes to them.

#![forbid(unsafe_code)]

use crate::model::clock::Millis;
use std::sync::Arc;

/// The position of a timer, by its due time and then by its id.
pub(crate) type Key = (Millis, Arc<str>);

/// Returns the lowest possible key at `due`.
pub(crate) fn first_from(due: Millis) -> Key {
    (due, Arc::from(""))
}

/// Returns the lowest possible key after a key.
pub(crate) fn first_after((due, id): &Key) -> Key {
    (*due, Arc::from(format!("{id}\0")))
}

/// A page of loaded keys.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The time of the store's clock.
    pub(crate) now: Millis,
    /// The end of the range that was read, at most the requested end.
    pub(crate) until: Millis,
    pub(crate) keys: Vec<Key>,
    /// Set if there may be more keys because the limit was reached.
    pub(crate) more: bool,
    /// Set if the store is paused.
    pub(crate) paused: bool,
    /// A key that is not greater than the key before it, so one of the two is damaged.
    pub(crate) misplaced: Option<Key>,
}

/// A change to the key of one timer.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) removed: Option<Key>,
    pub(crate) added: Option<Key>,
}
