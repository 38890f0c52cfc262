//! [`Sweeper`]: the exclusive half, which hands over the timers that are due.
//!
//! A sweep goes from occupied slot to occupied slot: it announces the tick
//! ([`SweptTick`](crate::swept::SweptTick)), takes the slots whose turn has come by it, and
//! meets the names in them ([`Shard::meet`]). Taken chains that a bounded sweep did not finish
//! stay in its hand, and timers that a panicking handler left stay in its batch, for the next
//! sweep. No handler ever runs under a guard of the epoch.
//!
//! [`Shard::meet`]: crate::shard::Shard::meet

#![forbid(unsafe_code)]

use crate::TimerId;
use crate::core::{Core, Kept, Leftovers};
use crate::hierarchy::slot::{Name, Read};
use crate::hierarchy::{Source, Taken};
use crate::metrics::Lateness;
use crate::reclaim::pin;
use crate::shard::Filed;
use crate::shard::meet::{Gathered, Met, Turn};
use crate::slab::Released;
use crate::sync::Arc;
use crate::tally::{bump, raise, take_back};
use crate::tick::Tick;
use crate::upkeep::Upkeep;
use crate::wheel::{Inner, Wheel};
use std::collections::VecDeque;
use std::fmt;
use std::time::Instant;

/// A timer that was due, handed over by a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired<T> {
    /// What was inserted.
    pub value: T,
    /// The timer's id, which now names nothing.
    pub id: TimerId,
    /// When it was due, rounded up to the wheel's resolution.
    pub deadline: Instant,
}

/// What a sweep did, and when the next is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct Sweep {
    /// How many timers were handed over.
    pub expired: usize,
    /// Whether everything that was due has been handed over; `false` only for a bounded sweep
    /// that has reached its limit.
    pub finished: bool,
    /// As [`Sweeper::next_deadline`].
    pub next_deadline: Option<Instant>,
}

/// The exclusive half of a wheel: whoever owns it hands over the timers that are due.
///
/// An event loop sweeps when its poll returns and uses
/// [`next_deadline`](Self::next_deadline) as the poll's time-out; a [`Driver`](crate::Driver)
/// does this on a thread of its own. Dropping the sweeper closes the wheel, since nothing could
/// fire any more; what is armed can still be cancelled, and drained. Timers that a sweep had taken
/// when `on_expired` panicked can then be drained, not cancelled.
///
/// # Examples
///
/// An event loop; its poll is woken by [`Builder::waker`](crate::Builder::waker) when another
/// thread arms an earlier timer:
///
/// ```
/// use std::time::{Duration, Instant};
/// use tourbillon::Builder;
///
/// # struct Poll;
/// # impl Poll { fn wait(&self, _: Option<Duration>) {} fn wake() {} }
/// # let poll = Poll;
/// let (wheel, mut sweeper) = Builder::new().waker(|| Poll::wake()).build()?;
/// wheel.insert("first", Duration::ZERO)?;
///
/// let mut fired = Vec::new();
/// while fired.is_empty() {
///     let timeout = sweeper
///         .next_deadline()
///         .map(|deadline| deadline.saturating_duration_since(Instant::now()));
///     poll.wait(timeout);
///     sweeper.sweep(|timer| fired.push(timer.value));
/// }
/// assert_eq!(fired, ["first"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it closes the wheel"]
pub struct Sweeper<T> {
    inner: Arc<Inner<T>>,
    /// Taken chains whose names have not all been met, in the order of their turns.
    hand: VecDeque<Taken>,
    /// Names read, still to be met.
    names: Vec<Name>,
    names_from: Source,
    /// Blocks with names that were reserved but not yet written.
    kept: VecDeque<Kept>,
    /// How many of them this sweep has yet to look at.
    unlooked: usize,
    /// Whether a sweep has stopped before its end.
    under_way: bool,
    /// Whether the sweep has yet to take what is overdue. It does so once: a handler that arms
    /// timers without delay cannot keep it from ending.
    begins: bool,
    /// Timers that have ended and that no handler has had yet.
    batch: VecDeque<Expired<T>>,
    upkeep: Upkeep,
    stamp: Stamp,
}

/// The last deadline handed over, as an instant, and its bucket of lateness.
#[derive(Clone, Copy)]
struct Stamp {
    tick: Tick,
    deadline: Instant,
    bucket: usize,
}

impl Stamp {
    /// The instant of a deadline; counts its lateness.
    #[inline]
    fn put<T>(&mut self, core: &Core<T>, tick: Tick, now: Instant) -> Instant {
        if self.tick != tick {
            let deadline = core.timeline.instant(tick);
            let bucket = Lateness::bucket(now.saturating_duration_since(deadline));
            *self = Stamp { tick, deadline, bucket };
        }
        bump(&core.sweeper.lateness[self.bucket], 1);
        self.deadline
    }
}

/// How many names are met together, their entries fetched ahead.
const TOGETHER: usize = 64;

/// How many timers a sweep collects before it hands them over.
const BATCH: usize = 256;

impl<T: Send> Sweeper<T> {
    pub(crate) fn new(inner: Arc<Inner<T>>) -> Self {
        let start = inner.core.timeline.instant(inner.core.swept.get());
        Self {
            upkeep: Upkeep::new(inner.core.shards.len()),
            inner,
            hand: VecDeque::new(),
            names: Vec::new(),
            names_from: Source { shard: 0, slot: None },
            kept: VecDeque::new(),
            unlooked: 0,
            under_way: false,
            begins: true,
            batch: VecDeque::new(),
            stamp: Stamp { tick: Tick::NEVER, deadline: start, bucket: 0 },
        }
    }

    /// The concurrent half of this wheel.
    ///
    /// # Examples
    ///
    /// ```
    /// let (_, sweeper) = tourbillon::Builder::new().build::<u64>()?;
    /// assert!(sweeper.wheel().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn wheel(&self) -> Wheel<T> {
        Wheel { inner: Arc::clone(&self.inner) }
    }

    /// Hands over every timer that is due by the clock's now, in order of deadline; those that are
    /// armed or reset meanwhile may come out of order.
    ///
    /// O(timers and stale names due, and slots they lie in). If `on_expired` panics, that timer
    /// counts as handed over, and the next sweep goes on with the one after it.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Builder, ManualClock};
    ///
    /// let clock = ManualClock::new();
    /// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
    /// wheel.insert("later", Duration::from_millis(20))?;
    /// wheel.insert("sooner", Duration::from_millis(10))?;
    ///
    /// clock.advance(Duration::from_millis(20));
    /// let mut fired = Vec::new();
    /// let sweep = sweeper.sweep(|timer| fired.push(timer.value));
    /// assert_eq!(fired, ["sooner", "later"]);
    /// assert_eq!((sweep.expired, sweep.next_deadline), (2, None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep(&mut self, on_expired: impl FnMut(Expired<T>)) -> Sweep {
        self.sweep_at(self.inner.clock.now(), on_expired)
    }

    /// As [`sweep`](Self::sweep), by a given now. A now before that of an earlier sweep hands
    /// over only what is overdue; one ahead of the clock hands timers over early, later
    /// ones too.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (wheel, mut sweeper) = tourbillon::Builder::new().build()?;
    /// wheel.insert("soon", Duration::from_secs(1))?;
    /// let sweep = sweeper.sweep_at(Instant::now() + Duration::from_secs(2), |_| ());
    /// assert_eq!(sweep.expired, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_at(&mut self, now: Instant, on_expired: impl FnMut(Expired<T>)) -> Sweep {
        self.run(now, usize::MAX, on_expired)
    }

    /// As [`sweep`](Self::sweep), but hands over at most `limit` timers. The next sweep carries
    /// on where this one stopped, before it begins its own; until then, timers that are due can
    /// still be cancelled and reset.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, mut sweeper) = tourbillon::Builder::new().build()?;
    /// for connection in 0..5 {
    ///     wheel.insert(connection, Duration::ZERO)?;
    /// }
    /// let sweep = sweeper.sweep_some(3, |_| ());
    /// assert_eq!((sweep.expired, sweep.finished), (3, false));
    /// let sweep = sweeper.sweep_some(3, |_| ());
    /// assert_eq!((sweep.expired, sweep.finished), (2, true));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sweep_some(&mut self, limit: usize, on_expired: impl FnMut(Expired<T>)) -> Sweep {
        self.run(self.inner.clock.now(), limit, on_expired)
    }

    /// When the next sweep is wanted: the turn of the next occupied slot, which comes no later
    /// than the earliest deadline; `None` if nothing waits. An instant that has passed means at
    /// once: after many cancels a few sweeps in a row clear away what they left, also when no timer
    /// is armed.
    ///
    /// From this call to the next sweep, whoever arms an earlier timer calls the
    /// [waker](crate::Builder::waker). A wheel that nobody sweeps for 2^36 ticks (2.2 years at
    /// 1 ms) may refuse inserts as beyond its range until it is swept. O(slots / 64); O(pages)
    /// once, when a burst is over.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// let (wheel, mut sweeper) = tourbillon::Builder::new().build()?;
    /// assert_eq!(sweeper.next_deadline(), None);
    /// wheel.insert("soon", Duration::from_secs(1))?;
    /// assert!(sweeper.next_deadline() <= Some(Instant::now() + Duration::from_secs(2)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_deadline(&mut self) -> Option<Instant> {
        let core = &self.inner.core;
        if !self.has_work() {
            self.upkeep.begin_if_idle(core);
        }
        if self.has_work() || self.upkeep.is_busy() {
            return Some(core.timeline.instant(core.swept.get()));
        }
        let mut next = self.next_turn();
        loop {
            // Steps 1 to 3 of the alarm.
            core.alarm.set(next);
            let again = self.next_turn();
            if again >= next {
                break;
            }
            next = again;
        }
        let swept = core.swept.get();
        if self.upkeep.begin_before_rest(core, next.since(swept)) {
            return Some(core.timeline.instant(swept));
        }
        (next != Tick::NEVER).then(|| core.timeline.instant(next))
    }

    fn run(&mut self, now: Instant, limit: usize, mut on_expired: impl FnMut(Expired<T>)) -> Sweep {
        // A sweep that was under way is finished first, and then this call's own begins.
        let mut rounds = 1 + usize::from(self.under_way);
        let mut expired = 0;
        while rounds > 0 && expired < limit {
            let wanted = limit - expired;
            if self.fill(now, BATCH.min(wanted), wanted) {
                rounds -= 1;
            }
            while expired < limit {
                let Some(timer) = self.batch.pop_front() else { break };
                expired += 1;
                on_expired(timer);
            }
        }
        let finished = rounds == 0 && self.batch.is_empty();
        Sweep { expired, finished, next_deadline: self.next_deadline() }
    }

    /// As [`run`](Self::run), into a vector. Answers whether everything due has been collected.
    pub(crate) fn collect(&mut self, limit: usize, into: &mut Vec<Expired<T>>) -> bool {
        let finished = self.fill(self.inner.clock.now(), limit, limit);
        into.extend(self.batch.drain(..));
        finished
    }

    /// Collects timers that are due, until the batch has about `batch` of them, and never more
    /// than `limit`. Answers whether everything due has been collected. Upkeep has its slice
    /// either way.
    fn fill(&mut self, now: Instant, batch: usize, limit: usize) -> bool {
        let inner = Arc::clone(&self.inner);
        let core = &inner.core;
        core.alarm.clear();
        self.begins |= !self.under_way;
        let finished = self.batch.len() < batch && self.step(core, now, batch, limit);
        self.under_way = !finished;
        bump(&core.sweeper.sweeps, 1);
        let took = self.inner.clock.now().saturating_duration_since(now);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        raise(&core.sweeper.longest_nanos, nanos);
        self.upkeep.begin(core);
        self.upkeep.advance(core, &mut self.kept, finished);
        finished
    }

    /// Works off what is in hand, then what is overdue, then slot after slot up to `now`. What
    /// is overdue is handed over together, up to `limit`: its order is made by sorting.
    fn step(&mut self, core: &Core<T>, now: Instant, batch: usize, limit: usize) -> bool {
        let mut finished = self.work(core, now, batch);
        if finished && std::mem::take(&mut self.begins) {
            self.take_overdue(core);
            self.unlooked = self.kept.len();
        }
        finished = finished && self.work_kept(core, now, limit) && self.work(core, now, limit);
        self.batch.make_contiguous().sort_by_key(|timer| timer.deadline);
        if !finished || self.batch.len() >= batch {
            return false;
        }
        let target = core.timeline.floor(now);
        let mut taken = Vec::new();
        loop {
            let swept = core.swept.get();
            if swept >= target {
                return true;
            }
            let farthest = swept.plus(Tick::LONGEST_REST);
            let tick = self.next_slot(swept).min(target).min(farthest);
            core.swept.announce(tick);
            for shard in &core.shards {
                shard.take_due(swept, tick, &mut taken);
            }
            taken.sort_by_key(|taken| taken.at);
            self.hand.extend(taken.drain(..));
            if tick == farthest {
                // What was filed as overdue before so long a step must not wait through another:
                // its deadline would leave the window.
                self.take_overdue(core);
            }
            if !self.work(core, now, batch) {
                return false;
            }
        }
    }

    /// Looks again at blocks whose names were not all written. `false` if the batch was full
    /// before that was done.
    fn work_kept(&mut self, core: &Core<T>, now: Instant, limit: usize) -> bool {
        self.meet(core, now, limit);
        while self.unlooked > 0 && self.names.is_empty() && self.batch.len() < limit {
            self.unlooked -= 1;
            let Some(mut kept) = self.kept.pop_front() else {
                break;
            };
            self.names_from = kept.from;
            if kept.unwritten.look(&mut self.names) {
                bump(&core.sweeper.blocks_freed, 1);
            } else {
                self.kept.push_back(kept);
            }
            self.meet(core, now, limit);
        }
        self.names.is_empty() && self.unlooked == 0
    }

    /// Takes what is overdue into the hand.
    fn take_overdue(&mut self, core: &Core<T>) {
        let swept = core.swept.get();
        self.hand.extend(core.shards.iter().filter_map(|shard| shard.take_overdue(swept)));
    }

    /// Meets the names in hand. `false` if the batch was full before that was done.
    fn work(&mut self, core: &Core<T>, now: Instant, limit: usize) -> bool {
        loop {
            self.meet(core, now, limit);
            if !self.names.is_empty() || self.batch.len() >= limit {
                return false;
            }
            if !self.read(core) {
                return true;
            }
        }
    }

    /// Reads names of the next slot in hand, as many as are worth fetching together. `false`: the
    /// hand is empty.
    fn read(&mut self, core: &Core<T>) -> bool {
        let Some(taken) = self.hand.front_mut() else {
            return false;
        };
        self.names_from = taken.from;
        while self.names.len() < TOGETHER {
            match taken.chain.read_block(&mut self.names) {
                None => {
                    self.hand.pop_front();
                    break;
                }
                Some(Read::Whole) => bump(&core.sweeper.blocks_freed, 1),
                Some(Read::Kept(unwritten)) => {
                    self.kept.push_back(Kept { from: taken.from, unwritten });
                }
            }
        }
        true
    }

    /// Meets the names read, while there is room in the batch.
    fn meet(&mut self, core: &Core<T>, now: Instant, limit: usize) {
        if self.names.is_empty() {
            return;
        }
        let Source { shard: number, slot } = self.names_from;
        let (shard, guard, before) = (&core.shards[number], pin(), self.batch.len());
        let turn = Turn { slot, swept: core.swept.get() };
        for name in &self.names {
            shard.prefetch(name.index(), &guard);
        }
        let mut gathered = Gathered {
            filed: Filed::default(),
            released: Released::NONE,
            hoard: self.upkeep.hoard(number),
        };
        let (mut dropped, mut refiled) = (0, 0);
        while self.batch.len() < limit {
            let Some(name) = self.names.pop() else { break };
            match shard.meet(name, turn, &mut gathered, &guard) {
                Met::Dropped => dropped += 1,
                Met::Refiled => refiled += 1,
                Met::Due(value, id, tick) => {
                    let deadline = self.stamp.put(core, tick, now);
                    self.batch.push_back(Expired { value, id, deadline });
                }
            }
        }
        shard.release(&mut gathered.released, &guard);
        let ended = (self.batch.len() - before) as u64;
        core.make_room(number, ended);
        let tally = &core.sweeper;
        bump(&tally.fired, ended);
        bump(&tally.dropped, dropped);
        bump(&tally.refiled, refiled);
        // A name filed again takes the place of the one met.
        bump(&tally.extra, u64::from(gathered.filed.names).saturating_sub(refiled));
        bump(&tally.blocks_made, u64::from(gathered.filed.blocks));
    }

    /// Whether names or timers are in hand.
    fn has_work(&self) -> bool {
        self.under_way || !self.batch.is_empty()
    }

    /// When the next sweep is wanted; [`Tick::NEVER`] if nothing waits.
    fn next_turn(&self) -> Tick {
        let core = &self.inner.core;
        let swept = core.swept.get();
        let overdue = core.shards.iter().any(|shard| shard.has_overdue());
        if overdue || self.kept.iter().any(|kept| kept.unwritten.has_news()) {
            return swept;
        }
        self.next_slot(swept)
    }

    /// The first tick after `swept` at which an occupied slot is taken, or [`Tick::NEVER`].
    fn next_slot(&self, swept: Tick) -> Tick {
        let turns = self.inner.core.shards.iter().filter_map(|shard| shard.next_turn(swept));
        turns.min().unwrap_or(Tick::NEVER)
    }
}

impl<T> Drop for Sweeper<T> {
    fn drop(&mut self) {
        let core = &self.inner.core;
        let timers: Vec<_> = std::mem::take(&mut self.batch)
            .into_iter()
            .map(|timer| (timer.id, core.timeline.ceil(timer.deadline), timer.value))
            .collect();
        // They have not been handed over after all: their names were met, and dropped.
        take_back(&core.sweeper.fired, timers.len() as u64);
        bump(&core.sweeper.dropped, timers.len() as u64);
        let hand = std::mem::take(&mut self.hand).into();
        let kept = std::mem::take(&mut self.kept).into();
        *core.leftovers() = Some(Leftovers { timers, hand, kept });
        core.close();
    }
}

impl<T> fmt::Debug for Sweeper<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper").field("in_hand", &self.hand.len()).finish_non_exhaustive()
    }
}
