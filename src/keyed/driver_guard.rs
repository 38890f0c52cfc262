//! [`DriverGuard`]: the driver, and the cleanup when the caller's last handle is dropped.

#![forbid(unsafe_code)]

use super::shared::KeyedShared;
use super::timer::{KeyedTimer, TimerKind};
use crate::discard::discard_by;
use crate::panics::DropEach;
use crate::{Driver, Unfired};
use std::hash::Hash;
use std::sync::Arc;

/// Shared by the caller's handles, but not by the handler's.
pub(super) struct DriverGuard<K, V> {
    driver: Arc<Driver<KeyedTimer<K>>>,
    shared: Arc<KeyedShared<K, V>>,
    /// [`DriverGuard::end`] for `drop`, which has no bound on the key.
    end: fn(&Self),
}

impl<K: Hash + Eq + Send + 'static, V> DriverGuard<K, V> {
    pub(super) fn new(driver: Arc<Driver<KeyedTimer<K>>>, shared: Arc<KeyedShared<K, V>>) -> Self {
        Self { driver, shared, end: Self::end }
    }

    /// Drops the values that have not fired. Handles inside handlers and values may live on, and
    /// the map with them. Timers that the tick thread and the executor already hold still fire.
    ///
    /// The last handle may be dropped under a lock that a handler takes, so this does not wait for
    /// a handler. It closes the wheel and takes out the timers that have not fired, and the tick
    /// thread ends by itself. To see the handlers end, a caller shuts the timers down and then
    /// waits.
    fn end(&self) {
        discard_by(self.driver.shutdown_detached(), |Unfired { value: timer, id, .. }| {
            let mut each = DropEach::default();
            if let TimerKind::Key(key) = &timer.0 {
                each.run(|| drop(self.shared.map.remove_if(key, |state| state.id == id)));
            }
            each.drop_one(timer);
        });
    }
}

impl<K, V> Drop for DriverGuard<K, V> {
    fn drop(&mut self) {
        (self.end)(self);
    }
}
