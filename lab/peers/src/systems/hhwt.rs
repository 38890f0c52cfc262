//! `hierarchical_hash_wheel_timer` with its thread. Every operation is a message to that thread.
//!
//! There is no reset. A timer's id is its value and its caller.

use crate::system::System;
use crate::tally::fired;
use crate::workload::{Move, Workload};
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicState, Timer, TimerReturn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The handle of the thread.
pub(crate) struct Threaded {
    timer: TimerRef<u64, Value, Never>,
    /// The number added to a place to make an id.
    first: u64,
}

/// The content of a timer, which is also its id.
#[derive(Debug)]
pub(crate) struct Value(u64);

impl OneshotState for Value {
    type Id = u64;

    fn id(&self) -> &u64 {
        &self.0
    }

    fn trigger(self) {
        fired(self.0);
    }
}

/// No timer is periodic.
#[derive(Debug)]
pub(crate) enum Never {}

impl PeriodicState for Never {
    type Id = u64;

    fn id(&self) -> &u64 {
        match *self {}
    }

    fn trigger(self) -> TimerReturn<Self> {
        match self {}
    }
}

impl System for Threaded {
    const NAME: &'static str = "hhwt";

    type Shared = (TimerRef<u64, Value, Never>, Arc<AtomicU64>);

    fn start(_timers: usize) -> Self::Shared {
        let thread = TimerWithThread::new().expect("a thread can be started");
        // Never dropped, because the process ends with the measurement.
        (Box::leak(Box::new(thread)).timer_ref(), Arc::default())
    }

    fn caller((timer, callers): Self::Shared, _timers: usize) -> Self {
        // Relaxed: only assigns numbers.
        Self { timer, first: callers.fetch_add(1, Relaxed) << 32 }
    }

    fn can(workload: Workload) -> bool {
        !matches!(workload, Workload::ResetLater | Workload::ResetEarlier)
    }

    fn insert(&mut self, delays: &[Duration]) {
        for (value, &delay) in (self.first..).zip(delays) {
            self.timer.schedule_once(delay, Value(value));
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let id = self.first + place as u64;
            self.timer.cancel(&id);
            self.timer.schedule_once(delay, Value(id));
        }
    }

    fn reset(&mut self, _moves: &[Move]) {
        unreachable!("it has no reset")
    }
}
