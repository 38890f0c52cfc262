//! [`Agenda`]: the tick at which each shard has to be scanned. The protocol with the threads that
//! file references is in [`next_scan`](crate::wheel::progress::next_scan).

#![forbid(unsafe_code)]

use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::Taken;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::tick::Tick;
use std::collections::VecDeque;

/// The sweeper's own copy of the next expiry of each shard, in few cache lines.
#[derive(Debug)]
pub(super) struct Agenda {
    /// The first tick at which an occupied slot is taken, as far as the sweeper knows. It may be
    /// earlier after a slot was taken early. [`SUSPENDED`] between the acceptance of a report and
    /// the scan.
    next: Box<[Tick]>,
}

/// Every step of the sweep scans a shard that was reported.
const SUSPENDED: Tick = Tick(0);

impl Agenda {
    pub(super) fn new(shards: usize) -> Self {
        Self { next: vec![Tick::NEVER; shards].into() }
    }

    /// Returns the first tick at which a shard has to be scanned.
    pub(super) fn next(&self) -> Tick {
        self.next.iter().copied().min().unwrap_or(Tick::NEVER)
    }

    /// Notes that the sweeper itself has filed a reference in a slot that is taken at `at`.
    pub(super) fn lower<T>(&mut self, engine: &Engine<T>, shard: usize, at: Tick) {
        if at < self.next[shard] {
            self.set(engine, shard, at);
        }
    }

    /// Finds the next expiries of the shards that were reported. Returns the number of scans.
    pub(super) fn scan_reported<T>(&mut self, engine: &Engine<T>, swept: Tick) -> usize {
        if !self.accept_reports(engine) {
            return 0;
        }
        self.scan(engine, SUSPENDED, |engine, shard| {
            engine.shard(shard).hierarchy.next_expiry(swept)
        })
    }

    /// Finds the next expiry of a shard from which slots were taken early.
    pub(super) fn scan_again<T>(&mut self, engine: &Engine<T>, shard: usize, swept: Tick) {
        engine.shard(shard).next_scan.set(Tick::NEVER);
        full_fence();
        self.set(engine, shard, engine.shard(shard).hierarchy.next_expiry(swept));
    }

    /// Advances the sweep from `swept` to `tick`, and takes every slot that expires on the way.
    /// Returns the number of scans.
    pub(super) fn advance<T>(
        &mut self,
        engine: &Engine<T>,
        swept: Tick,
        tick: Tick,
        taken: &mut VecDeque<Taken>,
    ) -> usize {
        for (shard, _) in engine.shards.iter().zip(&self.next).filter(|(_, next)| **next <= tick) {
            shard.next_scan.set(Tick::NEVER);
        }
        engine.progress.publish(tick);
        self.accept_reports(engine);
        self.scan(engine, tick, |engine, shard| {
            engine.shard(shard).hierarchy.take_due(swept, tick, taken)
        })
    }

    /// Suspends the shards that were reported. Returns `true` if there are any.
    fn accept_reports<T>(&mut self, engine: &Engine<T>) -> bool {
        let mut any = false;
        engine.progress.reports().accept(|shard| {
            engine.shard(shard).next_scan.set(Tick::NEVER);
            self.next[shard] = SUSPENDED;
            any = true;
        });
        if any {
            full_fence();
        }
        any
    }

    /// Scans each shard whose next expiry is not after `tick`. `find` returns its new one.
    fn scan<T>(
        &mut self,
        engine: &Engine<T>,
        tick: Tick,
        mut find: impl FnMut(&Engine<T>, usize) -> Tick,
    ) -> usize {
        let mut scans = 0;
        for shard in 0..self.next.len() {
            if self.next[shard] <= tick {
                let next = find(engine, shard);
                self.set(engine, shard, next);
                scans += 1;
            }
        }
        scans
    }

    fn set<T>(&mut self, engine: &Engine<T>, shard: usize, next: Tick) {
        self.next[shard] = next;
        engine.shard(shard).next_scan.set(next);
    }
}
