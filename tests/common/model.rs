//! The sequential specification, a map from id to deadline. It is driven side by side with a wheel
//! by operations of simulated callers. The property test and the fuzz target share it.

#[path = "setup.rs"]
pub(crate) mod setup;

use setup::Setup;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tourbillon::__internals::Geometry;
use tourbillon::{Clock, ManualClock, Refusal, Sweeper, TimerId, Wheel};

/// One operation of a simulated caller. Delays and steps are in quarters of a tick.
#[derive(Clone, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Op {
    Insert { delay: u32 },
    InsertAt { offset: i32 },
    Cancel { which: usize },
    Reset { which: usize, delay: u32 },
    ResetAt { which: usize, offset: i32 },
    Look { which: usize },
    MadeUp { bits: u64 },
    Sweep { step: u32 },
    SweepSome { step: u32, limit: usize },
    Drain,
}

/// The state of a timer in the model, with its value and the tick (since the start) when it is due.
#[derive(Clone, Copy, Debug)]
struct Known {
    value: u64,
    due: u64,
}

/// A wheel and its model.
pub(crate) struct Model {
    wheel: Wheel<u64>,
    sweeper: Sweeper<u64>,
    clock: ManualClock,
    tick: Duration,
    /// The longest delay or step, in quarters of a tick. It spans a few dozen revolutions of the
    /// wheel.
    longest: u32,
    capacity: u64,
    armed: BTreeMap<TimerId, Known>,
    /// All ids that were returned, in order, because callers keep ids forever.
    ids: Vec<TimerId>,
    next_value: u64,
    /// Set if a bounded sweep has stopped before its end.
    under_way: bool,
    shards: u64,
    /// The number of operations. Each files two references at most, which may be refiled.
    operations: u64,
    /// The present tick of the last sweep that was completed.
    finished_at: u64,
}

/// The minimum number of references and slots that a bounded sweep checks in one call before it
/// stops.
const LOOKS: u64 = 512;

impl Model {
    /// Runs all operations, and the checks at the end.
    pub(crate) fn run<'a>(setup: &Setup, ops: impl IntoIterator<Item = &'a Op>) {
        let mut model = Self::new(setup);
        for op in ops {
            model.apply(op);
        }
        model.finish();
    }

    fn new(setup: &Setup) -> Self {
        let (wheel, sweeper, clock) = setup.build();
        Self {
            wheel,
            sweeper,
            clock,
            tick: setup.tick,
            longest: 1 << (range_bits(setup.geometry) + 7).min(25),
            capacity: setup.capacity.unwrap_or(u64::MAX),
            armed: BTreeMap::new(),
            ids: Vec::new(),
            next_value: 0,
            under_way: false,
            shards: setup.shards as u64,
            operations: 0,
            finished_at: 0,
        }
    }

    /// Applies one operation to both and compares the answers.
    fn apply(&mut self, op: &Op) {
        self.operations += 1;
        match *op {
            Op::Insert { delay } => {
                let delay = self.quarters(delay);
                self.insert(self.clock.now() + delay, |wheel, value| wheel.insert(value, delay));
            }
            Op::InsertAt { offset } => {
                let deadline = self.around(offset);
                self.insert(deadline, |wheel, value| wheel.pin().insert_at(value, deadline));
            }
            Op::Cancel { which } => {
                let Some(id) = self.pick(which) else { return };
                let expected = self.armed.remove(&id).map(|known| known.value);
                assert_eq!(self.wheel.cancel(id), expected, "cancel {id:?}");
            }
            Op::Reset { which, delay } => {
                let delay = self.quarters(delay);
                let deadline = self.clock.now() + delay;
                self.reset(which, deadline, |wheel, id| wheel.reset(id, delay));
            }
            Op::ResetAt { which, offset } => {
                let deadline = self.around(offset);
                self.reset(which, deadline, |wheel, id| wheel.pin().reset_at(id, deadline));
            }
            Op::Look { which } => {
                let Some(id) = self.pick(which) else { return };
                assert_eq!(self.wheel.contains(id), self.armed.contains_key(&id));
                assert_eq!(self.wheel.deadline(id).is_some(), self.armed.contains_key(&id));
            }
            Op::MadeUp { bits } => self.made_up(bits),
            Op::Sweep { step } => self.sweep(step, None),
            Op::SweepSome { step, limit } => self.sweep(step, Some(limit)),
            Op::Drain => self.drain(),
        }
        assert_eq!(self.wheel.len(), self.armed.len());
    }

    /// Advances the time past all deadlines, and checks that nothing is left.
    fn finish(mut self) {
        self.sweep(0, None);
        while let Some(due) = self.armed.values().map(|known| known.due).max() {
            let ticks = due.saturating_sub(self.now_tick());
            let quarters = u32::try_from(ticks * 4 + 4).unwrap_or(u32::MAX);
            self.sweep(quarters.min(self.longest - 1), None);
        }
        assert!(self.wheel.is_empty());
        // Upkeep discards the remaining references in a few slices, and then nothing is left to do.
        let mut slices = 0;
        while slices < 20 && self.sweeper.next_deadline().is_some() {
            let _ = self.sweeper.sweep(|_| ());
            slices += 1;
        }
        assert!(slices < 20, "nothing is armed, nothing is wanted");
        assert_eq!(self.wheel.metrics().stale_references, 0);
    }

    fn quarters(&self, quarters: u32) -> Duration {
        self.tick / 4 * (quarters % self.longest)
    }

    fn around(&self, offset: i32) -> Instant {
        let distance = self.quarters(offset.unsigned_abs());
        let now = self.clock.now();
        if offset < 0 { now.checked_sub(distance).unwrap_or(now) } else { now + distance }
    }

    fn pick(&self, which: usize) -> Option<TimerId> {
        let last = self.ids.len().checked_sub(1)?;
        // Mostly recent ids, but old ones too.
        Some(self.ids[last - (which % (last + 1))])
    }

    fn now_tick(&self) -> u64 {
        ticks(self.clock.elapsed(), self.tick)
    }

    /// Returns the tick when a timer with this deadline is due, rounded up unless it has passed.
    fn due(&self, deadline: Instant) -> u64 {
        if deadline <= self.clock.now() {
            return 0;
        }
        let elapsed = deadline.saturating_duration_since(self.clock.start());
        ticks(elapsed + self.tick - Duration::from_nanos(1), self.tick)
    }

    fn insert(
        &mut self,
        deadline: Instant,
        insert: impl FnOnce(&Wheel<u64>, u64) -> Result<TimerId, tourbillon::InsertError<u64>>,
    ) {
        let value = self.next_value;
        self.next_value += 1;
        match insert(&self.wheel, value) {
            Ok(id) => {
                assert!((self.armed.len() as u64) < self.capacity);
                assert!(!self.ids.contains(&id), "{id:?} was given out twice");
                self.ids.push(id);
                self.armed.insert(id, Known { value, due: self.due(deadline) });
            }
            Err(refused) => {
                assert_eq!(refused.value, value);
                let full = Refusal::AtCapacity { capacity: self.capacity };
                assert_eq!(refused.reason, full);
                assert_eq!(self.armed.len() as u64, self.capacity);
            }
        }
    }

    fn reset(
        &mut self,
        which: usize,
        deadline: Instant,
        reset: impl FnOnce(&Wheel<u64>, TimerId) -> Result<bool, tourbillon::BeyondRange>,
    ) {
        let Some(id) = self.pick(which) else { return };
        let due = self.due(deadline);
        let expected = self.armed.get_mut(&id).map(|known| known.due = due).is_some();
        assert_eq!(reset(&self.wheel, id), Ok(expected), "reset {id:?}");
    }

    fn made_up(&mut self, bits: u64) {
        let Some(id) = TimerId::from_bits(bits) else {
            return;
        };
        assert_eq!(id.to_bits(), bits);
        let expected = self.armed.remove(&id).map(|known| known.value);
        assert_eq!(self.wheel.cancel(id), expected);
        assert_eq!(self.wheel.reset(id, self.tick), Ok(false));
        assert!(!self.wheel.contains(id));
    }

    fn sweep(&mut self, step: u32, limit: Option<usize>) {
        // The wheel must not promise a later deadline than the earliest one, and it must keep its
        // promise.
        let promised = self.sweeper.next_deadline();
        let earliest = self.armed.values().map(|known| known.due).min();
        if let Some(due) = earliest {
            let promised = promised.expect("timers are armed");
            let promised = promised.saturating_duration_since(self.clock.start());
            assert!(ticks(promised, self.tick) <= due.max(self.now_tick()));
        }
        self.clock.advance(self.quarters(step));
        let (now, instant) = (self.now_tick(), self.clock.now());
        let mut last = None;
        let (armed, capacity) = (&mut self.armed, limit.unwrap_or(usize::MAX));
        let carries_on = self.under_way;
        let sweep = self.sweeper.sweep_some(capacity, |timer| {
            let known = armed.remove(&timer.id).expect("only armed timers fire, once");
            assert_eq!(timer.value, known.value);
            assert!(known.due <= now, "early");
            assert!(timer.deadline <= instant);
            // A sweep that continues an earlier one begins in the middle, and its own round
            // follows.
            assert!(carries_on || last <= Some(timer.deadline), "out of order");
            last = Some(timer.deadline);
        });
        assert!(sweep.expired <= capacity);
        self.under_way = !sweep.finished;
        if sweep.finished {
            let late = self.armed.values().filter(|known| known.due <= now).count();
            assert_eq!(late, 0, "due and not handed over");
            self.finished_at = now;
        } else if sweep.expired < capacity {
            // The sweep stopped because it had used its budget, which exceeds the work that there
            // can be if little time has passed and few operations were made. Each shard is searched
            // for a slot, and a reference may be visited, and refiled, in every other tick.
            let ticks = now - self.finished_at + 2;
            let looks = ticks * self.shards + (8 + ticks) * self.operations;
            assert!(looks >= LOOKS, "only its limits stop a sweep");
            assert!(limit.is_some(), "an unbounded sweep comes to its end");
        }
    }

    fn drain(&mut self) {
        let mut drained: Vec<(TimerId, u64)> =
            self.wheel.drain().into_iter().map(|timer| (timer.id, timer.value)).collect();
        drained.sort_unstable();
        let expected: Vec<(TimerId, u64)> =
            self.armed.iter().map(|(&id, known)| (id, known.value)).collect();
        assert_eq!(drained, expected);
        self.armed.clear();
    }
}

/// Returns the number of whole ticks in a span of time.
fn ticks(span: Duration, tick: Duration) -> u64 {
    u64::try_from(span.as_nanos() / tick.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the number of bits of ticks that all levels of a wheel span together.
fn range_bits(geometry: Geometry) -> u32 {
    geometry.root_bits + (geometry.levels - 1) * geometry.level_bits
}
