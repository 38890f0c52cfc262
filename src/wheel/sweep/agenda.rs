//! [`Agenda`]: what the sweeper knows of each shard: the tick at which it has to be scanned, and
//! whether references have been filed outside of its slots. The steps S1 to S4 of the handshake
//! with the threads that file references are in [`progress`](crate::wheel::progress).

#![forbid(unsafe_code)]

use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::Taken;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::tick::Tick;
use std::collections::VecDeque;

/// The sweeper's knowledge of all shards. For shards that have nothing to do, an operation costs a
/// comparison each, and a load for each 32 of them.
#[derive(Debug)]
pub(super) struct Agenda {
    /// For each shard, the first tick at which an occupied slot is taken, as far as the sweeper
    /// knows. It may be earlier after a slot was taken early. [`REPORTED`] between the acceptance
    /// of a report and the scan.
    next: Box<[Tick]>,
    /// The shards that have overdue references.
    overdue: Vec<usize>,
}

/// Every step of the sweep scans a shard that was reported.
const REPORTED: Tick = Tick(0);

impl Agenda {
    pub(super) fn new(shards: usize) -> Self {
        Self { next: vec![Tick::NEVER; shards].into(), overdue: Vec::new() }
    }

    /// Returns the first tick at which a shard has to be scanned.
    pub(super) fn next(&self) -> Tick {
        self.next.iter().copied().min().unwrap_or(Tick::NEVER)
    }

    /// Returns `true` if a shard has overdue references.
    pub(super) fn has_overdue(&self) -> bool {
        !self.overdue.is_empty()
    }

    /// Takes the overdue references of all shards.
    pub(super) fn take_overdue<'a, T>(
        &'a mut self,
        engine: &'a Engine<T>,
        swept: Tick,
    ) -> impl Iterator<Item = Taken> + 'a {
        let shards = self.overdue.drain(..);
        shards.filter_map(move |shard| engine.shard(shard).hierarchy.take_overdue(swept))
    }

    /// Notes what the sweeper itself has filed in a shard, of which the earliest is taken at `at`.
    pub(super) fn note_filed<T>(&mut self, engine: &Engine<T>, shard: usize, at: Tick) {
        if at < self.next[shard] {
            self.set(engine, shard, at);
        }
    }

    /// Does S3 and S4: finds the next expiries of the shards that were reported. Returns the number
    /// of scans.
    pub(super) fn scan_reported<T>(&mut self, engine: &Engine<T>, swept: Tick) -> usize {
        if !self.accept_reports(engine) {
            return 0;
        }
        self.scan(engine, REPORTED, |engine, shard| {
            engine.shard(shard).hierarchy.next_expiry(swept)
        })
    }

    /// Finds the next expiry of a shard from which slots were taken early.
    pub(super) fn scan_again<T>(&mut self, engine: &Engine<T>, shard: usize, swept: Tick) {
        engine.shard(shard).next_scan.set(Tick::NEVER);
        full_fence();
        self.set(engine, shard, engine.shard(shard).hierarchy.next_expiry(swept));
    }

    /// Does S1 to S4: advances the sweep from `swept` to `tick`, and takes every slot that expires
    /// on the way. Returns the number of scans.
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

    /// Step S3: suspends the shards that were reported. Returns `true` if there are any.
    fn accept_reports<T>(&mut self, engine: &Engine<T>) -> bool {
        let mut any = false;
        engine.progress.reports().accept(|shard| {
            engine.shard(shard).next_scan.set(Tick::NEVER);
            self.next[shard] = REPORTED;
            any = true;
        });
        if any {
            full_fence();
        }
        any
    }

    /// Step S4: scans each shard whose next expiry is not after `tick`. `find` returns the expiry
    /// after that.
    fn scan<T>(
        &mut self,
        engine: &Engine<T>,
        tick: Tick,
        mut find: impl FnMut(&Engine<T>, usize) -> Tick,
    ) -> usize {
        let mut scans = 0;
        for shard in 0..self.next.len() {
            if self.next[shard] > tick {
                continue;
            }
            if self.next[shard] == REPORTED {
                self.note_overdue(engine, shard);
            }
            let next = find(engine, shard);
            self.set(engine, shard, next);
            scans += 1;
        }
        scans
    }

    /// Notes whether a shard that was reported has overdue references.
    fn note_overdue<T>(&mut self, engine: &Engine<T>, shard: usize) {
        if engine.shard(shard).hierarchy.has_overdue() && !self.overdue.contains(&shard) {
            self.overdue.push(shard);
        }
    }

    fn set<T>(&mut self, engine: &Engine<T>, shard: usize, next: Tick) {
        self.next[shard] = next;
        engine.shard(shard).next_scan.set(next);
    }
}
