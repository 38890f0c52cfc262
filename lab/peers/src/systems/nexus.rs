//! `nexus-timer`, a wheel for one thread, here as a wheel in a mutex for each core and one thread
//! that sweeps them.
//!
//! Its handles cannot leave their thread, so a timer is cancelled and reset by the thread that
//! armed it, in that thread's shard. This is the best case of a sharded lock.

use crate::clock::now;
use crate::system::System;
use crate::tally::fired;
use crate::ticker;
use crate::workload::Move;
use nexus_timer::{TimerHandle, Wheel};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{Thread, available_parallelism};
use std::time::{Duration, Instant};

/// The number of entries that a wheel allocates at a time, as its manual recommends.
const CHUNK: usize = 4096;
/// The greatest number of timers taken while the lock is held once.
const BATCH: usize = 256;
/// The tick of a wheel, whose next deadline may be an estimate in the past.
const TICK: Duration = Duration::from_millis(1);

const HELD: &str = "a handle at every place";

/// All shards, and the caller's own.
pub(crate) struct Sharded {
    shards: Arc<[Mutex<Shard>]>,
    mine: usize,
    ticker: Thread,
    handles: Vec<Option<TimerHandle<u64>>>,
}

pub(crate) struct Shard {
    wheel: Wheel<u64>,
    /// The instant of the next sweep, or `None` if the ticker sleeps until it is woken.
    swept_at: Option<Instant>,
}

impl Shard {
    /// Returns `true` if the ticker must be woken for this deadline.
    fn wakes(&self, deadline: Instant) -> bool {
        self.swept_at.is_none_or(|swept_at| deadline < swept_at)
    }
}

impl Sharded {
    /// Passes due timers to the handler and returns the instant of the next sweep.
    fn sweep(shard: &Mutex<Shard>, due: &mut Vec<u64>) -> Option<Instant> {
        loop {
            let mut locked = shard.lock();
            let now = now();
            let expired = locked.wheel.poll_and_rebalance_with_limit(now, BATCH, due);
            let next = locked.wheel.next_deadline().map(|next| next.max(now + TICK));
            locked.swept_at = next;
            drop(locked);
            due.drain(..).for_each(fired);
            if expired < BATCH {
                return next;
            }
        }
    }
}

impl System for Sharded {
    const NAME: &'static str = "nexus-timer";

    type Shared = (Arc<[Mutex<Shard>]>, Thread, Arc<AtomicUsize>);

    fn start(_timers: usize) -> Self::Shared {
        let cores = available_parallelism().map_or(1, usize::from);
        let shard = || Shard { wheel: Wheel::unbounded(CHUNK, now()), swept_at: None };
        let shards: Arc<[_]> = (0..cores).map(|_| Mutex::new(shard())).collect();
        let swept = Arc::clone(&shards);
        let mut due = Vec::with_capacity(BATCH);
        let ticker = ticker::spawn(move || {
            swept.iter().filter_map(|shard| Self::sweep(shard, &mut due)).min()
        });
        (shards, ticker, Arc::default())
    }

    fn caller((shards, ticker, callers): Self::Shared, timers: usize) -> Self {
        // Relaxed: only assigns numbers.
        let mine = callers.fetch_add(1, Relaxed) % shards.len();
        Self { shards, mine, ticker, handles: Vec::with_capacity(timers) }
    }

    fn insert(&mut self, delays: &[Duration]) {
        for &delay in delays {
            let deadline = now() + delay;
            let mut shard = self.shards[self.mine].lock();
            let handle = shard.wheel.schedule(deadline, self.handles.len() as u64);
            if shard.wakes(deadline) {
                self.ticker.unpark();
            }
            drop(shard);
            self.handles.push(Some(handle));
        }
    }

    fn cancel_insert(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let handle = self.handles[place].take().expect(HELD);
            let value = self.shards[self.mine].lock().wheel.cancel(handle).expect("armed");
            let deadline = now() + delay;
            let mut shard = self.shards[self.mine].lock();
            self.handles[place] = Some(shard.wheel.schedule(deadline, value));
            if shard.wakes(deadline) {
                self.ticker.unpark();
            }
        }
    }

    fn reset(&mut self, moves: &[Move]) {
        for &Move { place, delay } in moves {
            let handle = self.handles[place].take().expect(HELD);
            let deadline = now() + delay;
            let mut shard = self.shards[self.mine].lock();
            self.handles[place] = Some(shard.wheel.reschedule(handle, deadline));
            if shard.wakes(deadline) {
                self.ticker.unpark();
            }
        }
    }
}
