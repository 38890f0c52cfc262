//! `hierarchical_hash_wheel_timer` with its thread: every operation is a message to it.
//!
//! There is no reset.

use super::System;
use crate::tally::fired;
use crate::workload::{Move, Workload};
use hierarchical_hash_wheel_timer::thread_timer::{TimerRef, TimerWithThread};
use hierarchical_hash_wheel_timer::{OneshotState, PeriodicState, Timer, TimerReturn};
use std::time::Duration;

/// The thread, and the way to reach it.
pub(crate) struct Threaded {
    _thread: TimerWithThread<u64, Value, Never>,
    timer: TimerRef<u64, Value, Never>,
}

/// What a timer carries; it is the timer's id as well.
#[derive(Debug)]
struct Value(u64);

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
enum Never {}

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

    fn new(_timers: usize) -> Self {
        let thread = TimerWithThread::new().expect("a thread can be started");
        Self { timer: thread.timer_ref(), _thread: thread }
    }

    fn can(workload: Workload) -> bool {
        !matches!(workload, Workload::ResetLater | Workload::ResetEarlier)
    }

    fn insert(&mut self, delays: &[Duration]) {
        for (value, &delay) in (0..).zip(delays) {
            self.timer.schedule_once(delay, Value(value));
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let id = place as u64;
            self.timer.cancel(&id);
            self.timer.schedule_once(delay, Value(id));
        }
    }

    fn reset(&mut self, _moves: &[Move]) {
        unreachable!("it has no reset")
    }
}
