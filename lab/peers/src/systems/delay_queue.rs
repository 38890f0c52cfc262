//! Tokio-util's `DelayQueue` in a mutex, with a task that delivers due timers.

use super::tokio::kept;
use crate::system::System;
use crate::tally::fired;
use crate::workload::Move;
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

/// The queue behind its lock.
pub(crate) struct Locked {
    runtime: Handle,
    queue: Arc<Mutex<DelayQueue<u64>>>,
    keys: Vec<Key>,
}

impl System for Locked {
    const NAME: &'static str = "delay-queue";

    type Shared = (Handle, Arc<Mutex<DelayQueue<u64>>>);

    fn start(_timers: usize) -> Self::Shared {
        let runtime = kept(Builder::new_multi_thread().enable_time().build());
        let queue = Arc::new(Mutex::new(DelayQueue::new()));
        let due = Arc::clone(&queue);
        // An empty queue keeps the waker, and wakes at the next insert.
        runtime.spawn(poll_fn(move |context| {
            let mut due = due.lock();
            while let Poll::Ready(Some(timer)) = due.poll_expired(context) {
                fired(timer.into_inner());
            }
            Poll::<()>::Pending
        }));
        (runtime, queue)
    }

    fn caller((runtime, queue): Self::Shared, timers: usize) -> Self {
        Self { runtime, queue, keys: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        let _entered = self.runtime.enter();
        for &delay in delays {
            let value = self.keys.len() as u64;
            self.keys.push(self.queue.lock().insert(value, delay));
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        let _entered = self.runtime.enter();
        for &Move { place, delay } in moves {
            let value = self.queue.lock().remove(&self.keys[place]).into_inner();
            self.keys[place] = self.queue.lock().insert(value, delay);
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        let _entered = self.runtime.enter();
        for &Move { place, delay } in moves {
            self.queue.lock().reset(&self.keys[place], delay);
        }
    }
}
