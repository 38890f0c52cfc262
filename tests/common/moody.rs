//! [`Moody`]: a clock that panics on demand.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::{Clock, ManualClock};

/// A manual clock that panics on a thread of some name at its n-th reading there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moody {
    pub(crate) manual: ManualClock,
    mood: Arc<Mutex<Option<(String, u32)>>>,
}

impl Moody {
    /// Makes the `reading`th reading from now on, and each one after it, panic on threads of this
    /// name.
    pub(crate) fn panic_on(&self, thread: &str, reading: u32) {
        *self.mood.lock().unwrap() = Some((thread.to_owned(), reading));
    }
}

impl Clock for Moody {
    fn now(&self) -> Instant {
        let mut mood = self.mood.lock().unwrap();
        if let Some((thread, left)) = &mut *mood
            && thread::current().name() == Some(thread)
        {
            *left = left.saturating_sub(1);
            let panics = *left == 0;
            drop(mood);
            assert!(!panics, "the clock");
        }
        self.manual.now()
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        self.manual.timeout(deadline)
    }

    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        self.manual.subscribe(wake);
    }
}
