//! Tokio's `Sleep` on a multi-thread runtime.
//!
//! Each timer is a boxed `Sleep`, as in hyper's timer, polled once with the runtime entered. A
//! cancel drops it, and the new `Sleep` reuses the box.

use crate::system::System;
use crate::waker::arm;
use crate::workload::Move;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::{Instant, Sleep, sleep};

/// Tokio's default timer.
pub(crate) struct Tokio {
    runtime: Handle,
    sleeps: Vec<Pin<Box<Sleep>>>,
}

/// A runtime that is never dropped, because the process ends with the measurement.
pub(super) fn kept(runtime: io::Result<Runtime>) -> Handle {
    Box::leak(Box::new(runtime.expect("threads can be started"))).handle().clone()
}

/// Arms a timer at a new place.
pub(super) fn insert(sleeps: &mut Vec<Pin<Box<Sleep>>>, delay: Duration) {
    let mut timer = Box::pin(sleep(delay));
    arm(timer.as_mut(), sleeps.len());
    sleeps.push(timer);
}

/// Cancels a timer and inserts a new one.
pub(super) fn cancel_insert(sleeps: &mut [Pin<Box<Sleep>>], Move { place, delay }: Move) {
    let timer = &mut sleeps[place];
    timer.set(sleep(delay));
    arm(timer.as_mut(), place);
}

/// Changes a timer's deadline.
pub(super) fn reset(sleeps: &mut [Pin<Box<Sleep>>], Move { place, delay }: Move) {
    let timer = &mut sleeps[place];
    timer.as_mut().reset(Instant::now() + delay);
    arm(timer.as_mut(), place);
}

impl System for Tokio {
    const NAME: &'static str = "tokio";

    type Shared = Handle;

    fn start(_timers: usize) -> Handle {
        kept(Builder::new_multi_thread().enable_time().build())
    }

    fn caller(runtime: Handle, timers: usize) -> Self {
        Self { runtime, sleeps: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        let _entered = self.runtime.enter();
        delays.iter().for_each(|&delay| insert(&mut self.sleeps, delay));
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        let _entered = self.runtime.enter();
        moves.iter().for_each(|&one| cancel_insert(&mut self.sleeps, one));
    }

    fn reset(&mut self, moves: &[Move]) {
        let _entered = self.runtime.enter();
        moves.iter().for_each(|&one| reset(&mut self.sleeps, one));
    }
}
