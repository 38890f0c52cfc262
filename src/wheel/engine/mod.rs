//! [`Engine`]: what all halves of a wheel share. The operations that any thread may call are in
//! [`ops`](super::ops).
//!
//! Time comes in as ticks, the caller and the guard as arguments: nothing here reads a clock or
//! starts a thread. The concurrent half
//! ([`Wheel`](crate::Wheel), [`Pinned`](crate::Pinned)) and the exclusive half
//! ([`Sweeper`](crate::Sweeper)) are thin around it.
//!
//! **Insert against close.** The closer sets the flag, passes a fence and drains. An inserter
//! publishes its timer and looks at the flag, and one of the two finds the other:
//!
//! * one that files a reference passes a fence in between. Whichever fence comes first, the drain
//!   finds the timer or the inserter finds the flag;
//! * one that relies on a reference arms by an exchange. The drain revalidates the state of each
//!   entry, by an exchange of the same word: if that comes first, the inserter's reads what the
//!   drain has written, and so finds the flag; if it comes later, the drain finds the timer. (In
//!   between another timer of the entry may have been armed by a store, which does not pass on what
//!   the drain has written. Its insert then has passed its fence after the closer's, and finds the
//!   flag; so it ends by its own withdrawal, whose exchange passes that on, or by a sweep or
//!   another drain, after which the entry has no reference in time to rely on.)
//!
//! An inserter that finds the flag cancels its own timer. Who wins that exchange has the value: it
//! is refused to its owner, or it was accepted and handed back by the drain (or fired), never both
//! and never neither.
//!
//! **What a sweeper leaves.** Timers that the sweeper had taken and not handed over, because a
//! handler panicked, are parked in `leftovers`, for the drain. References that it had taken and not
//! visited are of no use to anybody, and their blocks stay as they are until the engine goes: an
//! insert may still be about to write into one.

#![forbid(unsafe_code)]

use crate::error::BeyondRange;
use crate::panics::DropEach;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Relaxed};
use crate::wheel::counters::{SweepCount, ThreadCount};
use crate::wheel::hierarchy::geometry::Geometry;
use crate::wheel::id::TimerId;
use crate::wheel::memory::{Guard, pin};
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::progress::upkeep_flag::{UpkeepFlag, Usage};
use crate::wheel::progress::wakeup::Wakeup;
use crate::wheel::shard::Shard;
use crate::wheel::thread_state::{ThreadState, ThreadStates};
use crate::wheel::tick::{Tick, Timeline};
use crate::wheel::wheel_instant::WheelInstant;
use crossbeam_utils::CachePadded;
use once_cell::race::OnceBox;
use std::time::{Duration, Instant};

/// Everything that the halves of a wheel share.
#[derive(Debug)]
pub(crate) struct Engine<T> {
    pub(in crate::wheel) shards: Box<[CachePadded<Shard<T>>]>,
    pub(in crate::wheel) progress: Progress,
    pub(in crate::wheel) timeline: Timeline,
    pub(in crate::wheel) threads: ThreadStates,
    pub(in crate::wheel) upkeep: UpkeepFlag,
    /// Set once, by the sweeper. No thread waits for its lock (`unless_locked`).
    pub(in crate::wheel) leftovers: OnceBox<Mutex<Leftovers<T>>>,
    pub(in crate::wheel) closed: AtomicBool,
    /// Whether timers have ever been handed back.
    pub(in crate::wheel) drained: AtomicBool,
    pub(in crate::wheel) capacity: Option<Capacity>,
}

/// What a sweeper that goes leaves behind.
#[derive(Debug)]
pub(in crate::wheel) struct Leftovers<T> {
    /// Timers that had ended and were still to be handed over.
    pub(in crate::wheel) timers: Vec<(TimerId, Tick, T)>,
}

impl<T> Drop for Leftovers<T> {
    fn drop(&mut self) {
        let mut values = DropEach::default();
        for (_, _, value) in self.timers.drain(..) {
            values.drop_one(value);
        }
    }
}

/// A bound on the armed timers, split among the shards.
#[derive(Debug)]
pub(in crate::wheel) struct Capacity {
    pub(in crate::wheel) total: u64,
    /// How many more timers each shard may hold, from [`FULL`] on; less than that where timers were
    /// armed over the capacity.
    pub(in crate::wheel) room: Box<[CachePadded<AtomicU64>]>,
}

/// The room of a shard that may hold no more.
const FULL: u64 = 1 << 63;

/// Why a deadline cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfRange {
    /// It lies farther ahead than any timer may.
    TooFar,
    /// It is in range, but the wheel was not swept for so long that its words cannot hold it.
    Unswept,
}

/// What makes an engine.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shards: usize,
    pub(crate) geometry: Geometry,
    pub(crate) capacity: Option<u64>,
    pub(crate) timeline: Timeline,
    /// How long callers use a reading of the clock again.
    pub(crate) term_cycles: u64,
    pub(crate) origin: Tick,
    pub(crate) wakeup: Wakeup,
}

impl<T> Engine<T> {
    pub(crate) fn new(parts: Parts) -> Self {
        let shard = |number| CachePadded::new(Shard::new(number, parts.geometry));
        Self {
            shards: (0..parts.shards).map(shard).collect(),
            progress: Progress::new(parts.origin, parts.wakeup),
            timeline: parts.timeline,
            threads: ThreadStates::new(parts.shards, parts.capacity.is_some(), parts.term_cycles),
            upkeep: UpkeepFlag::new(),
            leftovers: OnceBox::new(),
            closed: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            capacity: parts.capacity.map(|total| Capacity::new(total, parts.shards)),
        }
    }

    /// One of them.
    #[inline]
    pub(crate) fn shard(&self, number: usize) -> &Shard<T> {
        &self.shards[number]
    }

    /// What the wheel holds.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            armed: self.armed(),
            references: self.references(),
            entries: self.entries(),
            orphaned: self.threads.orphaned(),
            blocks: self.blocks(),
            blocks_in_use: self.blocks_in_use(),
            blocks_slack: self
                .shards
                .iter()
                .map(|shard| 2 * shard.hierarchy.blocks().page_len())
                .sum(),
        }
    }

    /// The tick of a deadline `delay` from now: see [`tick_of`](Self::tick_of).
    pub(crate) fn tick_after(
        &self,
        delay: Duration,
        now: WheelInstant,
    ) -> Result<Tick, OutOfRange> {
        match self.in_window(self.timeline.fast_tick_after(delay, now)) {
            Some(tick) => Ok(tick),
            None => self.tick_after_slow(delay, now),
        }
    }

    /// A tick that the packed words can hold, as far as the sweep has come.
    #[inline]
    pub(crate) fn in_window(&self, tick: Option<Tick>) -> Option<Tick> {
        tick.filter(|tick| tick.0.wrapping_sub(self.progress.swept().0) <= Tick::AHEAD)
    }

    /// Whether every deadline that is in range from now on is [in the window](Self::in_window).
    pub(crate) fn reaches_from(&self, now: WheelInstant) -> bool {
        let farthest = self.timeline.farthest(now);
        farthest.is_some_and(|tick| tick.since(self.progress.swept()) <= Tick::AHEAD)
    }

    /// As [`tick_after`](Self::tick_after), for delays that are not plain.
    #[cold]
    fn tick_after_slow(&self, delay: Duration, now: WheelInstant) -> Result<Tick, OutOfRange> {
        let deadline = self.timeline.deadline(delay, now).ok_or(OutOfRange::TooFar)?;
        self.tick_of(deadline, now)
    }

    /// The tick of a deadline that lies so many nanoseconds after `now`.
    #[inline]
    pub(crate) fn tick_ahead(
        &self,
        deadline: Instant,
        ahead: u64,
        now: WheelInstant,
    ) -> Result<Tick, OutOfRange> {
        match self.in_window(self.timeline.fast_tick_ahead(ahead, now)) {
            Some(tick) => Ok(tick),
            None => self.tick_of(deadline, now),
        }
    }

    /// The tick of a deadline: the first at or after it, or, if it has passed by `now`, one that
    /// the next sweep reaches.
    #[cold]
    pub(crate) fn tick_of(&self, deadline: Instant, now: WheelInstant) -> Result<Tick, OutOfRange> {
        let (swept, now) = (self.progress.swept(), self.timeline.read(now));
        let farthest = swept.plus(Tick::AHEAD);
        if deadline <= now {
            // A wheel that was not swept for long may not reach it from here: it is due all the
            // same, as soon as the sweep comes so far.
            return Ok(self.timeline.floor(deadline).max(swept.oldest()).min(farthest));
        }
        let tick = self.timeline.ceil(deadline);
        if tick.since(self.timeline.floor(now)) > Tick::RANGE {
            return Err(OutOfRange::TooFar);
        }
        // Where a sweep was far ahead of the clock, the deadline is long past for it.
        let tick = tick.max(swept.oldest());
        if tick > farthest { Err(OutOfRange::Unswept) } else { Ok(tick) }
    }

    /// The error for a deadline out of range; wakes the sweeper if a sweep would mend it.
    #[cold]
    #[inline(never)]
    pub(crate) fn beyond_range(&self, why: OutOfRange) -> BeyondRange {
        let unswept = why == OutOfRange::Unswept;
        if unswept {
            self.progress.wakeup().wake();
        }
        BeyondRange { longest: self.timeline.longest_delay(), unswept }
    }

    /// Begins to fetch a timer.
    #[inline]
    pub(crate) fn prefetch(&self, id: TimerId, guard: &Guard) {
        if let Some(shard) = self.shards.get(id.shard()) {
            shard.prefetch(id.index(), guard);
        }
    }

    /// Whether a timer is armed.
    #[inline]
    pub(crate) fn contains(&self, id: TimerId, guard: &Guard) -> bool {
        self.shards.get(id.shard()).is_some_and(|shard| shard.contains(id, guard))
    }

    /// Whether a timer still waits that has been armed for a tick no earlier than this moment, and
    /// that its owner alone knows: without a look at it. `false` says nothing.
    ///
    /// It ends when the sweep has published its tick, or by a drain. The published tick, and the
    /// flag of the drain, come before its value is handed over; so who has been told of its end
    /// sees one or the other here. Who has not may be told a moment later.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn is_definitely_pending(&self, deadline: WheelInstant) -> bool {
        // Relaxed: ordered, where it counts, by how the caller was told.
        self.timeline.wheel_instant_of(self.progress.swept()) < deadline
            && !self.drained.load(Relaxed)
    }

    /// The deadline of an armed timer.
    pub(crate) fn deadline(&self, id: TimerId, guard: &Guard) -> Option<Tick> {
        self.shards.get(id.shard())?.deadline(id, &self.progress, guard)
    }

    /// How many timers are armed.
    pub(crate) fn armed(&self) -> u64 {
        // Ends first: each end that is counted here has its beginning counted below.
        let ended = self.threads.sum(ThreadCount::Cancelled)
            + self.threads.sum(ThreadCount::Returned)
            + self.progress.counters().get(SweepCount::Ended);
        let begun = self.begun();
        debug_assert!(ended <= begun, "{ended} ended, {begun} begun");
        begun.saturating_sub(ended)
    }

    /// How many timers have ever been armed.
    pub(crate) fn begun(&self) -> u64 {
        self.threads.sum(ThreadCount::Inserted)
    }

    /// How many references are filed, stale ones included.
    pub(crate) fn references(&self) -> u64 {
        let visited = self.progress.counters().get(SweepCount::Discarded)
            + self.progress.counters().get(SweepCount::Ended);
        self.filed().saturating_sub(visited)
    }

    /// How many references have ever been filed, beyond those filed again in the place of one
    /// visited.
    pub(crate) fn filed(&self) -> u64 {
        self.threads.sum(ThreadCount::Filed) + self.progress.counters().get(SweepCount::Extra)
    }

    /// How many timers the shards can tell apart.
    pub(in crate::wheel) fn most(&self) -> u64 {
        self.shards.iter().map(|shard| shard.most_entries()).sum()
    }

    /// How many entries there are, vacant or not.
    pub(crate) fn entries(&self) -> u64 {
        self.shards.iter().map(|shard| shard.slab.len()).sum()
    }

    /// How many bytes timers and references take.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |shard: &Shard<T>| shard.slab.bytes() + shard.hierarchy.blocks().bytes();
        self.shards.iter().map(|shard| bytes(shard) as u64).sum()
    }

    /// How many blocks of references there are, in use or not.
    fn blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hierarchy.blocks().len()).sum()
    }

    /// How many blocks of references are in use.
    fn blocks_in_use(&self) -> u64 {
        // What is freed first: as in `armed`.
        let freed = self.progress.counters().get(SweepCount::BlocksFreed);
        let made = self.threads.sum(ThreadCount::Blocks)
            + self.progress.counters().get(SweepCount::BlocksMade);
        made.saturating_sub(freed)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: an insert's second load is ordered by its fence; its first is a short cut.
        self.closed.load(Relaxed)
    }

    /// The word that [`close`](Self::close) sets.
    pub(crate) fn closed(&self) -> &AtomicBool {
        &self.closed
    }

    /// The bound on the armed timers, if there is one.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity.as_ref().map(|capacity| capacity.total)
    }

    /// No more inserts.
    pub(crate) fn close(&self) {
        // Relaxed: ordered by the fence.
        self.closed.store(true, Relaxed);
        full_fence();
        self.progress.wakeup().wake();
    }

    /// Calls `visit` with the deadline of each armed timer, as it is when it is looked at.
    pub(crate) fn for_each_armed(&self, guard: &Guard, mut visit: impl FnMut(Tick)) {
        for shard in &self.shards {
            shard.for_each_armed(&self.progress, guard, &mut visit);
        }
    }

    /// Leaves timers for the drain that the sweeper had taken and not handed over, as it goes.
    pub(crate) fn leave(&self, timers: Vec<(TimerId, Tick, T)>) {
        if !timers.is_empty() {
            // It is set once, since there is one sweeper.
            let _ = self.leftovers.set(Box::new(Mutex::new(Leftovers { timers })));
        }
    }

    /// Notes that timers of a shard have ended.
    #[inline]
    pub(in crate::wheel) fn make_room(&self, shard: usize, ended: u64) {
        if let Some(capacity) = &self.capacity {
            // Relaxed: a number of places; the entries themselves go over the vacant stack.
            capacity.room[shard].fetch_add(ended, Relaxed);
        }
    }

    /// Looks whether upkeep is wanted, when a caller's count of what makes garbage (`more` of it
    /// new) has passed another interval.
    #[inline]
    pub(in crate::wheel) fn note_garbage(&self, count: u64, more: u64) {
        if UpkeepFlag::is_time_to_check(count, more) {
            self.check_memory();
        }
    }

    /// Wakes the sweeper if upkeep is wanted and nobody has done so, and leaves to it what this
    /// caller has in its magazines.
    ///
    /// While far more entries are vacant than in use, a caller that only ends timers keeps none
    /// from then on: it may be about to wait for long, with a page for each entry in its magazines.
    #[cold]
    pub(in crate::wheel) fn check_memory(&self) {
        let wanted = !self.upkeep.is_wanted() && self.upkeep.check(self.usage());
        let (thread, surplus) = (self.threads.current(), self.upkeep.has_surplus());
        if wanted || surplus {
            self.empty(thread, &pin());
        }
        thread.keep(!surplus);
        if wanted {
            self.progress.wakeup().wake();
        }
    }

    /// Gives back the vacant entries in the magazines of threads that have ended, and of this one.
    pub(crate) fn empty_idle(&self, guard: &Guard) {
        self.threads.for_each_idle(|thread| self.empty(thread, guard));
    }

    /// Gives back the vacant entries in a magazines that are the calling thread's to empty.
    fn empty(&self, thread: &ThreadState, guard: &Guard) {
        if let Some(shard) = self.shards.get(thread.home) {
            shard.slab.empty(&thread.vacant, guard);
        }
    }

    pub(in crate::wheel) fn take_room(&self, shard: usize) -> bool {
        let Some(capacity) = &self.capacity else {
            return true;
        };
        let room = &capacity.room[shard];
        // Relaxed: as in `make_room`.
        let taken = |places| (places > FULL).then(|| places - 1);
        room.fetch_update(Relaxed, Relaxed, taken).is_ok()
    }
}

impl Capacity {
    fn new(total: u64, shards: usize) -> Self {
        let shards = shards as u64;
        let share = |number| total / shards + u64::from(number < total % shards);
        let room = (0..shards).map(|number| CachePadded::new(AtomicU64::new(FULL + share(number))));
        Self { total, room: room.collect() }
    }
}
