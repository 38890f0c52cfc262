//! [`Engine`]: what all halves of a wheel share. The operations that any thread may call are in
//! [`ops`](super::ops).
//!
//! Times are passed in as ticks, and the calling thread and its guard as arguments. The engine does
//! not read a clock and starts no thread. The concurrent half ([`Wheel`](crate::Wheel),
//! [`Pinned`](crate::Pinned)) and the exclusive half ([`Sweeper`](crate::Sweeper)) are thin layers
//! around it.
//!
//! **Insert against close.** The closer sets the closed flag, passes a fence and drains. An
//! inserter publishes its timer and then reads the flag. One of the two finds the other:
//!
//! * An insert that files a reference passes a fence in between. Whichever fence comes first, the
//!   drain finds the timer or the inserter finds the flag.
//! * An insert that relies on an old reference arms by an exchange. The drain revalidates the state
//!   of each entry by an exchange of the same word. If the drain's exchange comes first, the
//!   inserter's exchange reads what the drain has written, and so the inserter finds the flag. If
//!   it comes later, the drain finds the timer. (In between, another timer of the entry may have
//!   been armed by a store, which does not pass on what the drain has written. The insert of that
//!   timer has passed its fence after the closer's fence, and finds the flag. Its timer therefore
//!   ends by its own withdrawal, whose exchange passes the writes on, or by a sweep or another
//!   drain, after which the entry has no reference in time to rely on.)
//!
//! An inserter that finds the flag cancels its own timer. The winner of that exchange owns the
//! value. The value is therefore either refused to the caller of the insert, or it was accepted and
//! then handed back by the drain (or fired), never both and never neither.
//!
//! **What a sweeper leaves.** Timers that the sweeper had taken and not handed over, because a
//! handler panicked, are kept in `leftovers` for the drain. References that it had taken and not
//! visited are of no use any more. Their blocks stay in use until the engine is dropped, because an
//! insert may still be about to write into one of them.

#![forbid(unsafe_code)]

use crate::error::BeyondRange;
use crate::panics::DropEach;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Relaxed};
use crate::wheel::counters::{SweepCount, ThreadCount};
use crate::wheel::hierarchy::geometry::Geometry;
use crate::wheel::id::TimerId;
use crate::wheel::memory::pin;
use crate::wheel::progress::Progress;
use crate::wheel::progress::swept::full_fence;
use crate::wheel::progress::upkeep_flag::{INTERVAL, UpkeepFlag, Usage};
use crate::wheel::progress::wakeup::Wakeup;
use crate::wheel::shard::Shard;
use crate::wheel::thread_state::{ThreadState, ThreadStates};
use crate::wheel::tick::Tick;
use crate::wheel::timeline::{FARTHEST, LIFE, Timeline};
use crate::wheel::wheel_instant::WheelInstant;
use crossbeam_utils::CachePadded;
use once_cell::race::OnceBox;
use std::sync::Arc;

/// Everything that the halves of a wheel share.
#[derive(Debug)]
pub(crate) struct Engine<T> {
    pub(in crate::wheel) shards: Box<[CachePadded<Shard<T>>]>,
    pub(in crate::wheel) progress: Progress,
    pub(in crate::wheel) timeline: Timeline,
    pub(in crate::wheel) threads: ThreadStates,
    pub(in crate::wheel) upkeep: UpkeepFlag,
    /// Set once, by the sweeper. No thread blocks on its lock (`unless_locked`).
    pub(in crate::wheel) leftovers: OnceBox<Mutex<Leftovers<T>>>,
    pub(in crate::wheel) closed: AtomicBool,
    /// `true` once a drain has begun.
    pub(in crate::wheel) drained: AtomicBool,
    pub(in crate::wheel) capacity: Option<Capacity>,
}

/// What a dropped sweeper leaves behind.
#[derive(Debug)]
pub(in crate::wheel) struct Leftovers<T> {
    /// Timers that had ended and had not been handed over.
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
    shares: Box<[CachePadded<Share>]>,
}

/// The share of one shard in the bound.
#[derive(Debug)]
struct Share {
    most: u64,
    /// The number of armed timers. More than [`most`](Self::most) if some were [admitted in any
    /// case](Admission::Always).
    armed: AtomicU64,
}

/// How an insert treats the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The insert is refused if the wheel is full.
    IfRoom,
    /// The timer belongs to an owner that was admitted or refused before, and is not refused now.
    #[cfg(any(feature = "future", modelled))]
    Always,
}

/// The reason why a deadline cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutOfRange {
    /// It lies farther ahead than a timer may.
    TooFar,
    /// It is in range, but the last sweep is so long ago that the packed words cannot hold it.
    Unswept,
}

/// The parts of an engine.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) shards: usize,
    pub(crate) geometry: Geometry,
    pub(crate) capacity: Option<u64>,
    pub(crate) timeline: Timeline,
    /// The time for which a thread reuses a clock reading, in cycles of the processor's counter.
    pub(crate) term_cycles: u64,
    pub(crate) origin: Tick,
    pub(crate) wakeup: Wakeup,
}

impl<T> Engine<T> {
    pub(crate) fn new(parts: Parts) -> Self {
        let (geometry, levels) = (parts.geometry, parts.geometry.levels());
        let shard =
            |number| CachePadded::new(Shard::new(number, geometry.page_bits, Arc::clone(&levels)));
        Self {
            shards: (0..parts.shards).map(shard).collect(),
            progress: Progress::new(parts.origin, parts.wakeup, parts.shards),
            timeline: parts.timeline,
            threads: ThreadStates::new(parts.shards, parts.term_cycles),
            upkeep: UpkeepFlag::new(),
            leftovers: OnceBox::new(),
            closed: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            capacity: parts.capacity.map(|total| Capacity::new(total, parts.shards)),
        }
    }

    /// Returns the shard with this number.
    #[inline]
    pub(crate) fn shard(&self, number: usize) -> &Shard<T> {
        &self.shards[number]
    }

    /// Returns how full the wheel is.
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

    /// Returns the tick if the packed words can hold it at the present tick of the sweep.
    #[inline]
    pub(crate) fn in_window(&self, tick: Tick) -> Option<Tick> {
        (tick.0.wrapping_sub(self.progress.swept().0) <= Tick::AHEAD).then_some(tick)
    }

    /// Returns `true` if every deadline in range of `now` fits the window, now and later.
    pub(crate) fn reaches_from(&self, now: WheelInstant) -> bool {
        let farthest = self.timeline.floor(now).plus(Tick::RANGE + 1);
        farthest.since(self.progress.swept()) <= Tick::AHEAD && now.nanos <= LIFE
    }

    /// Returns the first tick at or after a deadline. If the deadline has passed by `now`, returns
    /// a tick that the next sweep reaches.
    pub(crate) fn tick_of(
        &self,
        deadline: WheelInstant,
        now: WheelInstant,
    ) -> Result<Tick, OutOfRange> {
        if now.nanos > LIFE {
            return Err(OutOfRange::TooFar);
        }
        let swept = self.progress.swept();
        let farthest = swept.plus(Tick::AHEAD);
        if deadline <= now {
            // If the last sweep is long ago, the window may end before this deadline. The timer is
            // then due when the sweep reaches the end of the window.
            return Ok(self.timeline.floor(deadline).max(swept.oldest()).min(farthest));
        }
        let tick = self.timeline.ceil(deadline);
        let is_too_far = deadline.nanos - now.nanos > FARTHEST
            || tick.since(self.timeline.floor(now)) > Tick::RANGE;
        if is_too_far {
            return Err(OutOfRange::TooFar);
        }
        // If the sweep is far ahead of the clock, the deadline lies far behind the sweep.
        let tick = tick.max(swept.oldest());
        if tick > farthest { Err(OutOfRange::Unswept) } else { Ok(tick) }
    }

    /// Returns the error for a deadline out of range. Wakes the sweeper if the deadline would be in
    /// range after a sweep.
    #[cold]
    #[inline(never)]
    pub(crate) fn beyond_range(&self, why: OutOfRange) -> BeyondRange {
        let unswept = why == OutOfRange::Unswept;
        if unswept {
            self.progress.wakeup().wake();
        }
        BeyondRange { longest: self.timeline.longest_delay(), unswept }
    }

    /// Prefetches the entry of a timer.
    #[inline]
    pub(crate) fn prefetch(&self, id: TimerId) {
        if let Some(shard) = self.shards.get(id.shard()) {
            shard.prefetch(id.index());
        }
    }

    /// Returns `true` if the timer is armed.
    #[inline]
    pub(crate) fn contains(&self, id: TimerId) -> bool {
        self.shards.get(id.shard()).is_some_and(|shard| shard.contains(id))
    }

    /// Returns `true` if a timer is still armed, without reading its entry. The timer was armed for
    /// a tick no earlier than `deadline`, and no other thread has its id. A result of `false` is
    /// inconclusive.
    ///
    /// Such a timer ends when the sweep has published its tick, or by a drain. The published tick
    /// and the drain's flag are written before the value is handed over. A caller that has been
    /// notified of the end therefore sees one of the two here. A caller that has not been notified
    /// yet may be notified a moment later.
    #[cfg(any(feature = "future", modelled))]
    #[inline]
    pub(crate) fn is_surely_armed(&self, deadline: WheelInstant) -> bool {
        // Relaxed: for a caller that was notified of the end, the notification orders this load
        // after the drain's store.
        self.timeline.wheel_instant_of(self.progress.swept()) < deadline
            && !self.drained.load(Relaxed)
    }

    /// Returns the deadline of an armed timer.
    pub(crate) fn deadline(&self, id: TimerId) -> Option<Tick> {
        self.shards.get(id.shard())?.deadline(id, &self.progress)
    }

    /// Returns the number of armed timers.
    pub(crate) fn armed(&self) -> u64 {
        // The ends are read first, so that the beginning of each end counted here is counted below.
        let ended = self.threads.sum(ThreadCount::Cancelled)
            + self.threads.sum(ThreadCount::Returned)
            + self.progress.counters().get(SweepCount::Ended);
        let begun = self.begun();
        debug_assert!(ended <= begun, "{ended} ended, {begun} begun");
        begun.saturating_sub(ended)
    }

    /// Returns the number of timers ever armed.
    pub(crate) fn begun(&self) -> u64 {
        self.threads.sum(ThreadCount::Inserted)
    }

    /// Returns the number of filed references, including stale ones.
    pub(crate) fn references(&self) -> u64 {
        let visited = self.progress.counters().get(SweepCount::Discarded)
            + self.progress.counters().get(SweepCount::Ended);
        self.filed().saturating_sub(visited)
    }

    /// Returns the number of references ever filed, without those that replaced a visited one.
    pub(crate) fn filed(&self) -> u64 {
        self.threads.sum(ThreadCount::Filed) + self.progress.counters().get(SweepCount::Extra)
    }

    /// Returns the maximum number of entries of all shards together.
    pub(in crate::wheel) fn most(&self) -> u64 {
        self.shards.iter().map(|shard| shard.most_entries()).sum()
    }

    /// Returns the number of entries, vacant or not.
    pub(crate) fn entries(&self) -> u64 {
        self.shards.iter().map(|shard| shard.slab.len()).sum()
    }

    /// Returns the number of bytes that entries and blocks occupy.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = |shard: &Shard<T>| shard.slab.bytes() + shard.hierarchy.blocks().bytes();
        self.shards.iter().map(|shard| bytes(shard) as u64).sum()
    }

    /// Returns the number of blocks of references, in use or not.
    pub(crate) fn blocks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hierarchy.blocks().len()).sum()
    }

    /// Returns the number of blocks of references in use.
    fn blocks_in_use(&self) -> u64 {
        // The freed ones are read first, as the ends in `armed`.
        let freed = self.progress.counters().get(SweepCount::BlocksFreed);
        let made = self.threads.sum(ThreadCount::Blocks)
            + self.progress.counters().get(SweepCount::BlocksMade);
        made.saturating_sub(freed)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: the second load of an insert is ordered by its fence or exchange, and the first
        // is a short cut.
        self.closed.load(Relaxed)
    }

    /// Returns the flag that [`close`](Self::close) sets.
    pub(crate) fn closed(&self) -> &AtomicBool {
        &self.closed
    }

    /// Returns the bound on the armed timers, if there is one.
    pub(crate) fn capacity(&self) -> Option<u64> {
        self.capacity.as_ref().map(|capacity| capacity.total)
    }

    /// Closes the wheel to further inserts.
    pub(crate) fn close(&self) {
        // Relaxed: ordered by the fence.
        self.closed.store(true, Relaxed);
        full_fence();
        self.progress.wakeup().wake();
    }

    /// Calls `visit` with the deadline of each armed timer, as of the time when it is read.
    pub(crate) fn for_each_armed(&self, mut visit: impl FnMut(Tick)) {
        for shard in &self.shards {
            shard.for_each_armed(&self.progress, &mut visit);
        }
    }

    /// Keeps for the drain the timers that a sweeper had taken and not handed over when it was
    /// dropped.
    pub(crate) fn keep_for_drain(&self, timers: Vec<(TimerId, Tick, T)>) {
        if !timers.is_empty() {
            // Set once, because there is one sweeper.
            let _ = self.leftovers.set(Box::new(Mutex::new(Leftovers { timers })));
        }
    }

    /// Makes room in a shard for as many timers as have ended.
    #[inline]
    pub(in crate::wheel) fn make_room(&self, shard: usize, ended: u64) {
        if let Some(capacity) = &self.capacity {
            // Relaxed: only a number. The entries themselves go through the vacant stack.
            capacity.shares[shard].armed.fetch_sub(ended, Relaxed);
        }
    }

    /// Checks the memory use each time the thread has made another [`INTERVAL`] of garbage, which
    /// consists of entries returned to the slab and of references.
    #[inline]
    pub(in crate::wheel) fn note_garbage(&self, thread: &ThreadState, more: u32) {
        let sum = thread.add_garbage(more);
        if u64::from(sum) % INTERVAL < u64::from(more) {
            self.check_memory();
        }
    }

    /// Requests upkeep if it is needed and has not been requested, which wakes the sweeper. Gives
    /// back the entries in this thread's magazines first.
    ///
    /// While far more entries are vacant than in use, a thread that only ends timers keeps no
    /// entries from then on, because it may be about to wait for a long time, and each entry in its
    /// magazines may keep a page.
    #[cold]
    pub(in crate::wheel) fn check_memory(&self) {
        let wanted = !self.upkeep.is_wanted() && self.upkeep.check(self.usage());
        let (thread, surplus) = (self.threads.current(), self.upkeep.has_surplus());
        if wanted || surplus {
            self.empty(thread);
        }
        thread.set_keeps_entries(!surplus);
        if wanted {
            self.progress.wakeup().wake();
        }
    }

    /// Gives back the vacant entries in the magazines of threads that have exited, and of this one.
    pub(crate) fn empty_idle(&self) {
        self.threads.for_each_idle(|thread| self.empty(thread));
    }

    /// Gives back the vacant entries in magazines that only the calling thread may access.
    fn empty(&self, thread: &ThreadState) {
        if let Some(shard) = self.shards.get(thread.home) {
            shard.slab.empty(&thread.vacant, &pin());
        }
    }

    /// Takes room for one timer in a shard. Returns `false` if the shard is full.
    #[inline]
    pub(in crate::wheel) fn take_room(&self, shard: usize, admission: Admission) -> bool {
        self.capacity.as_ref().is_none_or(|capacity| capacity.shares[shard].take(admission))
    }
}

impl Capacity {
    fn new(total: u64, shards: usize) -> Self {
        let shards = shards as u64;
        let share = |number| {
            let most = total / shards + u64::from(number < total % shards);
            CachePadded::new(Share { most, armed: AtomicU64::new(0) })
        };
        Self { total, shares: (0..shards).map(share).collect() }
    }
}

impl Share {
    fn take(&self, admission: Admission) -> bool {
        let admits = |armed| admission != Admission::IfRoom || armed < self.most;
        // Relaxed: as in `make_room`.
        self.armed
            .fetch_update(Relaxed, Relaxed, |armed| admits(armed).then_some(armed + 1))
            .is_ok()
    }
}
