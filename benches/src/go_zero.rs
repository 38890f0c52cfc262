//! The design of go-zero's `TimingWheel`. Callers send every operation over an unbuffered channel
//! to the thread that owns the wheel. This is a new implementation for comparison, without its
//! faults.

use std::collections::HashMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// A key's place in the wheel.
type Slot = HashMap<u64, u64>;

/// An operation that callers send.
enum Operation {
    Set(u64, u64, Duration),
    Move(u64, Duration),
    Remove(u64),
}

/// A wheel of `u64` keys and values, owned by a thread.
#[derive(Debug)]
pub struct GoZero {
    operations: SyncSender<Operation>,
}

impl GoZero {
    /// Creates a wheel of `slots` slots, each `interval` wide. No timer fires, because only callers
    /// are measured.
    #[allow(clippy::disallowed_methods, reason = "the design is a thread")]
    #[must_use]
    pub fn new(interval: Duration, slots: usize) -> Self {
        let (operations, handed) = sync_channel(0);
        thread::spawn(move || {
            let mut wheel = vec![Slot::new(); slots];
            let mut places: HashMap<u64, usize> = HashMap::new();
            let slot = |delay: Duration| (delay.as_nanos() / interval.as_nanos()) as usize % slots;
            for operation in handed {
                let (key, arm) = match operation {
                    Operation::Set(key, value, delay) => (key, Some((Some(value), slot(delay)))),
                    Operation::Move(key, delay) => (key, Some((None, slot(delay)))),
                    Operation::Remove(key) => (key, None),
                };
                let armed = places.remove(&key).and_then(|place| wheel[place].remove(&key));
                if let Some((value, place)) = arm
                    && let Some(value) = value.or(armed)
                {
                    wheel[place].insert(key, value);
                    places.insert(key, place);
                }
            }
        });
        Self { operations }
    }

    /// Arms a key, or replaces its timer.
    pub fn set(&self, key: u64, value: u64, delay: Duration) {
        self.hand_over(Operation::Set(key, value, delay));
    }

    /// Moves an armed key.
    pub fn move_to(&self, key: u64, delay: Duration) {
        self.hand_over(Operation::Move(key, delay));
    }

    /// Removes a key.
    pub fn remove(&self, key: u64) {
        self.hand_over(Operation::Remove(key));
    }

    fn hand_over(&self, operation: Operation) {
        // The thread ends only with this sender.
        let _ = self.operations.send(operation);
    }
}
