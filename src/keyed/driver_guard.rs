//! What the handles of the caller's own hold together: the driver, and what is to be dropped with
//! the last of them.

#![forbid(unsafe_code)]

use super::shared::KeyedShared;
use super::timer::{KeyedTimer, TimerKind};
use crate::panics::quietly;
use crate::{Driver, Unfired};
use std::hash::Hash;
use std::sync::Arc;

/// What the handles of the caller's own hold together.
pub(super) struct DriverGuard<K, V> {
    driver: Arc<Driver<KeyedTimer<K>>>,
    shared: Arc<KeyedShared<K, V>>,
    /// [`DriverGuard::end`], for `drop`, which knows nothing of the key.
    end: fn(&Self),
}

impl<K: Hash + Eq + Send + 'static, V> DriverGuard<K, V> {
    pub(super) fn new(driver: Arc<Driver<KeyedTimer<K>>>, shared: Arc<KeyedShared<K, V>>) -> Self {
        Self { driver, shared, end: Self::end }
    }

    /// Drops what had not fired: handles inside of handlers and values may live on, and the map
    /// with them. What the tick thread and the executor have still fires.
    ///
    /// Nobody knows under which lock the last handle is dropped, and a handler may take the same
    /// one: this waits for none. A value whose drop panics has nobody to tell, and ends nothing.
    fn end(&self) {
        for Unfired { value, id, .. } in self.driver.shutdown_detached() {
            quietly(|| match &value.0 {
                TimerKind::Key(key) => drop(self.shared.map.remove_if(key, |state| state.id == id)),
                TimerKind::Part(_) => {}
            });
            quietly(|| drop(value));
        }
    }
}

impl<K, V> Drop for DriverGuard<K, V> {
    fn drop(&mut self) {
        (self.end)(self);
    }
}
