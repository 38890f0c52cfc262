//! `async-io`, smol's reactor, which keeps its timers in one ordered map behind a mutex.

use crate::system::System;
use crate::waker::arm;
use crate::workload::Move;
use async_io::Timer;
use std::pin::Pin;
use std::time::Duration;

/// The process's reactor.
pub(crate) struct Reactor {
    timers: Vec<Timer>,
}

impl System for Reactor {
    const NAME: &'static str = "async-io";

    type Shared = ();

    fn start(_timers: usize) {}

    fn caller((): (), timers: usize) -> Self {
        Self { timers: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            let mut timer = Timer::after(delay);
            arm(Pin::new(&mut timer), self.timers.len());
            self.timers.push(timer);
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let timer = &mut self.timers[place];
            *timer = Timer::after(delay);
            arm(Pin::new(timer), place);
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let timer = &mut self.timers[place];
            timer.set_after(delay);
            arm(Pin::new(timer), place);
        }
    }
}
