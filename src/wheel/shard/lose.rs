//! The functions that lose references which cannot be filed, and that find their timers again. The
//! protocol is in [`unfiled`](super::unfiled).

#![forbid(unsafe_code)]

use super::{Shard, in_time};
use crate::wheel::hierarchy::entry_ref::EntryRef;
use crate::wheel::hierarchy::geometry::{Place, SlotIndex};
use crate::wheel::memory::Guard;
use crate::wheel::slab::entry::Entry;
use crate::wheel::tick::Tick;
use std::collections::VecDeque;

impl<T> Shard<T> {
    /// Returns the number of references that could not be filed so far.
    pub(crate) fn unfiled(&self) -> u64 {
        self.unfiled.count()
    }

    /// Appends a reference to each armed entry of a page for which no reference in time is known.
    /// Returns `false` if no page has this number or a greater one.
    pub(crate) fn read_unfiled(
        &self,
        page: u32,
        swept: Tick,
        references: &mut VecDeque<EntryRef>,
        guard: &Guard,
    ) -> bool {
        self.slab.for_each_on_page(page, guard, |index, entry| {
            let (state, next_visit) = (entry.state.load(), entry.next_visit.load());
            let known = !state.is_refiling() && in_time(next_visit, state.deadline(swept), swept);
            if state.is_armed() && !known {
                references.push_back(EntryRef::new(index));
            }
        })
    }

    /// Files a reference that was taken early into its slot again. Returns `Some(true)` if it made
    /// a block for it. Returns `None` if there is no memory. The sweeper then finds the timer when
    /// it reads all entries.
    pub(crate) fn file_again(
        &self,
        reference: EntryRef,
        slot: SlotIndex,
        at: Tick,
        swept: Tick,
        guard: &Guard,
    ) -> Option<bool> {
        let made = self.hierarchy.file(reference, Place::Slot { slot, at });
        if made.is_none() {
            self.slab.entry(reference.index(), guard).inspect(|entry| {
                let mut state = entry.state.load();
                self.lose(entry, slot, swept);
                while let Err(now) = entry.state.try_revalidate(state) {
                    state = now;
                    entry.next_visit.clear_if(|tick| self.is_in_slot(tick, slot, swept));
                }
            });
        }
        made
    }

    /// Counts a reference that belongs in this slot and cannot be filed. Clears `next_visit` if it
    /// describes that reference.
    pub(in crate::wheel) fn lose(&self, entry: &Entry<T>, slot: SlotIndex, swept: Tick) {
        self.unfiled.add();
        entry.next_visit.clear_if(|tick| self.is_in_slot(tick, slot, swept));
    }

    /// The variant of [`lose`](Self::lose) for a place, which may be the overdue slot.
    pub(in crate::wheel) fn lose_at(&self, entry: &Entry<T>, place: Place, swept: Tick) {
        match place {
            Place::Overdue => self.unfiled.add(),
            Place::Slot { slot, .. } => self.lose(entry, slot, swept),
        }
    }

    /// Returns `true` if `next_visit` describes a reference in this slot.
    fn is_in_slot(&self, next_visit: Tick, slot: SlotIndex, swept: Tick) -> bool {
        swept < next_visit && self.hierarchy.is_taken_at(slot, next_visit)
    }
}

#[cfg(all(test, not(modelled)))]
mod tests {
    use crate::clock::ManualClock;
    use crate::error::Refusal;
    use crate::wheel::memory;
    use crate::wheel::{Builder, Geometry, Sweeper, TimerId, Wheel};
    use std::collections::HashMap;
    use std::time::Duration;

    const TICK: Duration = Duration::from_millis(1);

    /// A wheel that tests can deprive of memory for blocks.
    struct Bench {
        wheel: Wheel<u64>,
        sweeper: Sweeper<u64>,
        clock: ManualClock,
    }

    impl Bench {
        fn new(geometry: Geometry, builder: Builder) -> Self {
            let clock = ManualClock::new();
            let builder = builder.clock(clock.clone()).shards(1).__shape(geometry, 0);
            let (wheel, sweeper) = builder.build().expect("the shape is in range");
            Self { wheel, sweeper, clock }
        }

        fn exhaust(&self, exhausted: bool) {
            self.wheel.inner.engine.shard(0).hierarchy.blocks().exhaust(exhausted);
            memory::exhaust(exhausted);
        }

        /// Advances the clock and sweeps. Returns the values that fired, sorted.
        fn advance(&mut self, ticks: u32) -> Vec<u64> {
            self.clock.advance(TICK * ticks);
            let mut fired = Vec::new();
            let _ = self.sweeper.sweep(|timer| fired.push(timer.value));
            fired.sort_unstable();
            fired
        }
    }

    fn tiny() -> Geometry {
        Geometry { root_bits: 2, level_bits: 1, levels: 3, page_bits: 2 }
    }

    #[test]
    fn an_insert_without_memory_for_its_reference_gives_the_value_back() {
        for builder in [Builder::new(), Builder::new().capacity(1)] {
            let mut bench = Bench::new(tiny(), builder);
            bench.exhaust(true);
            for delay in [0, 1, 3, 100] {
                let refused = bench.wheel.insert(7, TICK * delay).unwrap_err();
                assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, 7));
                assert_eq!(refused.to_string(), "out of memory for another timer");
            }
            assert_eq!(bench.sweeper.next_deadline(), None);
            bench.exhaust(false);
            let id = bench.wheel.insert(8, TICK * 3).unwrap();
            assert!(bench.advance(2).is_empty() && bench.wheel.contains(id));
            assert_eq!(bench.advance(1), [8]);
        }
    }

    #[test]
    fn a_reset_without_memory_for_its_reference_is_obeyed() {
        let mut bench = Bench::new(Geometry::default(), Builder::new());
        let hour = Duration::from_secs(3600);
        let ids: Vec<_> = (0..50).map(|n| bench.wheel.insert(n, hour).unwrap()).collect();
        // From here on the sweeper learns of the shard only by another report.
        assert!(bench.sweeper.next_deadline().is_some());
        bench.exhaust(true);
        for (&id, tick) in ids.iter().zip(0..) {
            assert_eq!(bench.wheel.reset(id, TICK * tick), Ok(true));
        }
        let next = bench.sweeper.next_deadline().unwrap();
        assert!(next <= bench.clock.start() + TICK, "the sweeper is wanted for each tick");
        assert_eq!(bench.advance(0), [0]);
        for n in 1..50 {
            assert_eq!(bench.advance(1), [n]);
        }
        assert_eq!(bench.wheel.metrics().stale_references, 50, "those of the hour");
    }

    /// There is memory for another block, but not for the slots of another row.
    #[test]
    fn slots_without_memory_are_like_blocks_without_memory() {
        let mut bench = Bench::new(Geometry::default(), Builder::new());
        let id = bench.wheel.insert(1, TICK * 10).unwrap();
        memory::exhaust(true);
        for delay in [70, 5000] {
            let refused = bench.wheel.insert(7, TICK * delay).unwrap_err();
            assert_eq!((refused.reason, refused.value), (Refusal::OutOfMemory, 7));
        }
        bench.wheel.insert(2, TICK * 11).unwrap();
        // The visit at 10 ticks finds no memory for a reference at 100.
        assert_eq!(bench.wheel.reset(id, TICK * 100), Ok(true));
        assert!(bench.advance(10).is_empty());
        assert_eq!(bench.advance(1), [2]);
        assert!(bench.advance(88).is_empty());
        assert_eq!(bench.advance(1), [1]);
        memory::exhaust(false);
        bench.wheel.insert(3, TICK * 70).unwrap();
        assert_eq!(bench.advance(70), [3]);
    }

    /// References are visited early, when stale ones outnumber the armed timers, and cannot be
    /// filed again.
    #[test]
    fn upkeep_without_memory_loses_nothing() {
        let mut bench = Bench::new(Geometry::default(), Builder::new());
        let day = Duration::from_secs(86_400);
        let armed: Vec<_> =
            (0..9).zip(5000..).map(|(n, at)| bench.wheel.insert(n, TICK * at).unwrap()).collect();
        let stale: Vec<_> = (0..40_000).map(|n| bench.wheel.insert(n, day).unwrap()).collect();
        bench.exhaust(true);
        assert!(stale.into_iter().all(|id| bench.wheel.cancel(id).is_some()));
        for _ in 0..100 {
            assert!(bench.advance(1).is_empty());
        }
        assert!(bench.wheel.metrics().stale_references < 100, "{:?}", bench.wheel.metrics());
        // Relies on no reference that has gone.
        for (id, n) in armed.into_iter().zip(0..) {
            assert_eq!(bench.wheel.reset(id, TICK * (6000 + n)), Ok(true));
        }
        assert!(bench.advance(5999).is_empty());
        for n in 0..9 {
            assert_eq!(bench.advance(1), [n]);
        }
    }

    /// Removes the timers that are due. Returns their values, sorted.
    fn take_due(armed: &mut HashMap<TimerId, (u64, u32)>, now: u32) -> Vec<u64> {
        let mut due: Vec<u64> =
            armed.values().filter(|&&(_, at)| at <= now).map(|&(n, _)| n).collect();
        armed.retain(|_, &mut (_, at)| at > now);
        due.sort_unstable();
        due
    }

    /// While memory comes and goes, each timer fires in the first sweep that reaches its deadline,
    /// or is refused, and the counts add up.
    #[test]
    fn everything_fires_in_time_while_memory_comes_and_goes() {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bench = Bench::new(tiny(), Builder::new());
            let (mut now, mut refused) = (0, 0);
            let mut armed = HashMap::<TimerId, (u64, u32)>::new();
            for n in 0..1500_u64 {
                let delay = if random.bool() { random.u32(0..8) } else { random.u32(0..90) };
                let any = armed.keys().nth(random.usize(0..armed.len().max(1))).copied();
                match (random.u32(0..12), any) {
                    (0..5, _) => match bench.wheel.insert(n, TICK * delay) {
                        Ok(id) => drop(armed.insert(id, (n, now + delay))),
                        Err(error) => {
                            assert_eq!((error.reason, error.value), (Refusal::OutOfMemory, n));
                            refused += 1;
                        }
                    },
                    (5 | 6, Some(id)) => {
                        assert_eq!(bench.wheel.reset(id, TICK * delay), Ok(true));
                        armed.entry(id).and_modify(|(_, at)| *at = now + delay);
                    }
                    (7, Some(id)) => {
                        assert_eq!(bench.wheel.cancel(id), armed.remove(&id).map(|(n, _)| n));
                    }
                    (8, _) => bench.exhaust(random.bool()),
                    _ => {
                        let ticks = if random.u32(0..9) == 0 { random.u32(0..40) } else { 1 };
                        now += ticks;
                        assert_eq!(bench.advance(ticks), take_due(&mut armed, now), "seed {seed}");
                    }
                }
                assert_eq!(bench.wheel.len(), armed.len());
            }
            assert!(refused > 0);
            let left = bench.advance(100).len();
            assert_eq!((left, bench.wheel.metrics().armed), (armed.len(), 0));
            // Nothing that was counted for a timer without a reference is left over.
            bench.exhaust(false);
            let _ = bench.advance(1000);
            assert_eq!(bench.wheel.metrics().stale_references, 0, "seed {seed}");
        }
    }
}
