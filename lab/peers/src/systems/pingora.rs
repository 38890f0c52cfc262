//! `pingora-timeout`, whose timers are rounded to 10 ms. The timers of one thread and slot share a
//! node.
//!
//! A cancelled timer's node stays until it is due, and there is no reset.

use crate::system::System;
use crate::waker::arm;
use crate::workload::{Move, Workload};
use pingora_timeout::fast_timeout::fast_sleep;
use std::pin::Pin;
use std::time::Duration;

/// The process's timer.
pub(crate) struct Pingora {
    sleeps: Vec<Pin<Box<dyn Future<Output = ()>>>>,
}

impl System for Pingora {
    const NAME: &'static str = "pingora-timeout";

    type Shared = ();

    fn start(_timers: usize) {}

    fn caller((): (), timers: usize) -> Self {
        Self { sleeps: Vec::with_capacity(timers) }
    }

    fn can(workload: Workload) -> bool {
        !matches!(workload, Workload::ResetLater | Workload::ResetEarlier)
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            let mut timer = Box::pin(fast_sleep(delay));
            arm(timer.as_mut(), self.sleeps.len());
            self.sleeps.push(timer);
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let mut timer = Box::pin(fast_sleep(delay));
            arm(timer.as_mut(), place);
            self.sleeps[place] = timer;
        }
    }

    fn reset(&mut self, _moves: &[Move]) {
        unreachable!("it has no reset")
    }
}
