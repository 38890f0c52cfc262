//! [`Asked`]: a clock that reports the instants that its user would sleep until.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tourbillon::{Clock, ManualClock};

/// A manual clock that reports the instants that its user would sleep until, and makes it check
/// again soon.
#[derive(Debug)]
pub(crate) struct Asked(pub(crate) ManualClock, pub(crate) Sender<Instant>);

impl Clock for Asked {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn timeout(&self, deadline: Instant) -> Option<Duration> {
        let _ = self.1.send(deadline);
        self.0.timeout(deadline).or(Some(Duration::from_millis(1)))
    }

    fn subscribe(&self, wake: Box<dyn Fn() -> bool + Send + Sync>) {
        self.0.subscribe(wake);
    }
}
