//! The time of day for calendars without a clock of their own. It is the system's time, or in
//! virtual time the time of the test's clock.

#![forbid(unsafe_code)]

use crate::clock::ManualClock;
use std::cell::RefCell;
use std::time::SystemTime;

thread_local! {
    /// The clocks that the thread follows while it runs tests. The last one applies.
    static FOLLOWED: RefCell<Vec<ManualClock>> = const { RefCell::new(Vec::new()) };
}

/// Returns the time of day of the clock that the calling thread follows, or else the system's.
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of day")]
pub(crate) fn wall_now() -> SystemTime {
    // A thread that is being torn down follows none.
    let followed = FOLLOWED.try_with(|clocks| clocks.borrow().last().map(ManualClock::wall));
    followed.ok().flatten().unwrap_or_else(SystemTime::now)
}

/// A guard that makes the calling thread follow a clock; created by [`follow`].
#[cfg(feature = "testing")]
pub(crate) struct FollowGuard {
    clock: ManualClock,
    _of_its_thread: std::marker::PhantomData<*const ()>,
}

/// Makes the calling thread read the time of day of `clock` until the guard is dropped. Guards may
/// be dropped in any order.
#[cfg(feature = "testing")]
pub(crate) fn follow(clock: &ManualClock) -> FollowGuard {
    let _torn_down = FOLLOWED.try_with(|clocks| clocks.borrow_mut().push(clock.clone()));
    FollowGuard { clock: clock.clone(), _of_its_thread: std::marker::PhantomData }
}

#[cfg(feature = "testing")]
impl Drop for FollowGuard {
    fn drop(&mut self) {
        let _torn_down = FOLLOWED.try_with(|clocks| {
            let mut clocks = clocks.borrow_mut();
            let shared = &self.clock.shared;
            let own = |clock: &ManualClock| std::sync::Arc::ptr_eq(&clock.shared, shared);
            if let Some(place) = clocks.iter().rposition(own) {
                clocks.remove(place);
            }
        });
    }
}
