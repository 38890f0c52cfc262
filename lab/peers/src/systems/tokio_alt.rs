//! Tokio's alternative timer, an unstable feature with a wheel for each worker.
//!
//! It is made for callers on a worker, and costs two to three times as much from outside. So the
//! operations are made by a task, which yields from time to time as a server's tasks do.

use super::tokio::{cancel_insert, insert, kept, reset};
use crate::system::System;
use crate::workload::Move;
use std::mem::take;
use std::pin::Pin;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::task::yield_now;
use tokio::time::Sleep;

/// The number of operations that a task makes before it yields.
const BATCH: usize = 64;

/// A timer that the runtime must be built with.
pub(crate) struct Alternative {
    runtime: Handle,
    sleeps: Vec<Pin<Box<Sleep>>>,
}

impl Alternative {
    /// Runs all operations on a worker.
    fn run<O: Copy + Send + Sync>(
        &mut self,
        operations: &'static [O],
        operate: impl Fn(&mut Vec<Pin<Box<Sleep>>>, O) + Send + 'static,
    ) {
        let mut sleeps = take(&mut self.sleeps);
        let task = self.runtime.spawn(async move {
            for batch in operations.chunks(BATCH) {
                batch.iter().for_each(|&one| operate(&mut sleeps, one));
                yield_now().await;
            }
            sleeps
        });
        self.sleeps = self.runtime.block_on(task).expect("every operation succeeds");
    }
}

impl System for Alternative {
    const NAME: &'static str = "tokio-alt";

    type Shared = Handle;

    fn start(_timers: usize) -> Handle {
        kept(Builder::new_multi_thread().enable_alt_timer().build())
    }

    fn caller(runtime: Handle, timers: usize) -> Self {
        Self { runtime, sleeps: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &'static [Duration]) {
        self.run(delays, insert);
    }

    fn cancel_insert(&mut self, moves: &'static [Move]) {
        self.run(moves, |sleeps, one| cancel_insert(sleeps, one));
    }

    fn reset(&mut self, moves: &'static [Move]) {
        self.run(moves, |sleeps, one| reset(sleeps, one));
    }
}
