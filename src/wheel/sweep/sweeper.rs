//! [`Sweeper`]: hands over due timers.
//!
//! A sweep proceeds from occupied slot to occupied slot. It publishes a tick ([`Progress`]), takes
//! the slots that expire at that tick in the shards that its [`Agenda`] names, and visits the
//! references in them ([`Shard::visit`]). Its position and the references that it has taken but not
//! yet visited are its [`Stage`] and its [`Pending`]. Timers that are left over when a handler
//! panics stay in the batch for the next sweep. No handler runs under a guard
//! ([`memory`](crate::wheel::memory)).
//!
//! **A sweep has a fixed end.** It is the time of the call in which the sweep began, however many
//! calls it takes. Overdue references are taken when a sweep begins. If the end advanced with the
//! clock, a sweep with a backlog would never let the next one begin.
//!
//! **References outside of the slots** must be visited before their deadlines leave the window that
//! the packed words can represent:
//!
//! - Overdue references are taken when a sweep begins, and again each time it has advanced by
//!   [`Tick::MAX_REST`] ticks.
//! - Blocks that were not completely written are checked when a sweep begins and at each tick that
//!   it publishes.
//!
//! [`Progress`]: crate::wheel::progress::Progress
//! [`Shard::visit`]: crate::wheel::shard::Shard::visit

#![forbid(unsafe_code)]

use crate::clock::Clock;
use crate::panics::quietly;
use crate::sync::Arc;
use crate::wheel::counters::SweepCount;
use crate::wheel::engine::Engine;
use crate::wheel::hierarchy::Source;
use crate::wheel::memory::pin;
use crate::wheel::metrics::Lateness;
use crate::wheel::ops::visit::{Gathered, Requeued, SlotExpiry, VisitOutcome};
use crate::wheel::shard::Filed;
use crate::wheel::shared::Shared;
use crate::wheel::slab::Released;
use crate::wheel::sweep::agenda::Agenda;
use crate::wheel::sweep::report::{Expired, SweepReport};
use crate::wheel::sweep::stage::{Pending, Stage};
use crate::wheel::sweep::upkeep::{self, Upkeep};
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;
use std::collections::VecDeque;
use std::fmt;
use std::mem::replace;
use std::time::{Duration, Instant};

/// The exclusive half of a wheel, which hands over due timers.
///
/// An event loop calls [`sweep`](Self::sweep) when its poll returns and passes
/// [`timeout`](Self::timeout) to the poll. A [`Driver`](crate::Driver) does this on a thread of its
/// own. Dropping the sweeper closes the wheel, since no timer could fire any more. Armed timers can
/// still be cancelled and drained. If `on_expired` panicked, the timers that the sweep had already
/// taken can be drained but not cancelled.
///
/// # Examples
///
/// An event loop. [`Builder::waker`](crate::Builder::waker) wakes its poll when a thread arms an
/// earlier timer:
///
/// ```
/// use std::time::Duration;
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
///     poll.wait(sweeper.timeout());
///     let swept = sweeper.sweep(|timer| fired.push(timer.value));
///     assert_eq!(swept.expired, fired.len());
/// }
/// assert_eq!(fired, ["first"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it closes the wheel"]
pub struct Sweeper<T> {
    shared: Arc<Shared<T>>,
    stage: Stage,
    /// The tick at which the sweep ends.
    end: Tick,
    pending: Pending,
    agenda: Agenda,
    /// The tick that the sweep had reached when it last took the overdue references.
    overdue_taken: Tick,
    /// The number of references, slots or scans that the present call may still examine.
    budget: usize,
    /// Timers that have ended but have not been handed over yet.
    batch: VecDeque<Expired<T>>,
    upkeep: Upkeep,
    stamp: Stamp,
}

/// The deadline of the timer last visited, as a tick and as an instant.
#[derive(Clone, Copy)]
struct Stamp {
    tick: Tick,
    deadline: Instant,
}

/// Counts timers as they are handed over.
struct HandedOver<'c, T> {
    engine: &'c Engine<T>,
    now: Instant,
    /// The last deadline, and its bucket of lateness.
    last: Option<(Instant, usize)>,
}

impl<T> HandedOver<'_, T> {
    /// Counts timers with the same deadline.
    #[inline]
    fn count(&mut self, deadline: Instant, timers: u64) {
        let bucket = match self.last {
            Some((last, bucket)) if last == deadline => bucket,
            _ => Lateness::bucket(self.now.saturating_duration_since(deadline)),
        };
        self.last = Some((deadline, bucket));
        self.engine.progress.counters().add_late(bucket, timers);
        self.engine.progress.counters().add(SweepCount::Fired, timers);
    }
}

/// The number of timers that a sweep collects before it hands them over.
const BATCH: usize = 256;

/// The number of references, slots or scans that a bounded sweep examines in one call, unless its
/// limit is higher. It takes some tens of microseconds if none of them is in a cache.
const BUDGET: usize = if cfg!(modelled) { 2 } else { 1 << 9 };

impl<T: Send> Sweeper<T> {
    pub(crate) fn new(shared: Arc<Shared<T>>) -> Self {
        let swept = shared.engine.progress.swept();
        let start = shared.engine.timeline.instant(swept);
        Self {
            upkeep: Upkeep::new(shared.engine.shards.len()),
            pending: Pending::new(),
            agenda: Agenda::new(shared.engine.shards.len()),
            shared,
            stage: Stage::Ended,
            end: Tick(0),
            overdue_taken: swept,
            budget: 0,
            batch: VecDeque::new(),
            stamp: Stamp { tick: swept, deadline: start },
        }
    }

    /// Returns the concurrent half of this wheel.
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
        Wheel { shared: Arc::clone(&self.shared) }
    }

    /// Hands over every timer that is due by the clock's present time, in order of deadline. Timers
    /// that are armed or reset meanwhile may come out of order.
    ///
    /// O(due timers, stale references, and their slots). If `on_expired` panics, that timer counts
    /// as handed over, and the next sweep continues with the one after it.
    ///
    /// The sweep takes up to 256 timers, and all overdue ones, before it calls `on_expired` for the
    /// first of them. `on_expired` can therefore not cancel the others of its batch. If it has to,
    /// sweep one timer at a time with [`sweep_some`](Self::sweep_some).
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
    pub fn sweep(&mut self, on_expired: impl FnMut(Expired<T>)) -> SweepReport {
        self.sweep_at(self.shared.clock.now(), on_expired)
    }

    /// Sweeps, as [`sweep`](Self::sweep) does, up to the given time. A time before that of an
    /// earlier sweep hands over only overdue timers. A time ahead of the clock hands over timers
    /// early, including later ones.
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
    pub fn sweep_at(&mut self, now: Instant, on_expired: impl FnMut(Expired<T>)) -> SweepReport {
        self.sweep_until(now, usize::MAX, on_expired)
    }

    /// Sweeps a bounded amount: hands over at most `limit` timers, and stops after it has examined
    /// some hundreds of references, which may be stale or due later.
    ///
    /// It may therefore hand over fewer timers than `limit`, or none, without being
    /// [finished](SweepReport::finished). With a limit of zero it does nothing. The next sweep
    /// first continues to the end of this one, and then begins its own. Until then, due timers that
    /// were not handed over can still be cancelled and reset.
    ///
    /// O(limit), regardless of the past.
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
    pub fn sweep_some(&mut self, limit: usize, on_expired: impl FnMut(Expired<T>)) -> SweepReport {
        self.sweep_until(self.shared.clock.now(), limit, on_expired)
    }

    /// Returns the time at which the next sweep is needed, or `None` if nothing is pending. It is
    /// the expiry of the next occupied slot, which is no later than the earliest deadline. (A reset
    /// counts once it has returned.)
    ///
    /// An instant that has passed means that a sweep is needed at once. After many cancels, a few
    /// sweeps in a row discard the stale references, even if no timer is armed.
    ///
    /// From this call to the next sweep, a thread that arms an earlier timer calls the
    /// [waker](crate::Builder::waker), even if it is the thread of the sweeper itself. A wheel that
    /// is not swept for 2^36 ticks (19 hours at 1 µs, 2.2 years at 1 ms) may refuse inserts and
    /// resets until it is swept ([`BeyondRange::unswept`](crate::BeyondRange::unswept)). The first
    /// refusal calls the waker.
    ///
    /// O(slots / 64) for each shard that was reported since the last sweep, because a timer was
    /// armed earlier than all others in it. O(threads) before a long rest or if no timer has fired
    /// since the last call, and once O(pages) after a burst has ended.
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
        let engine = &self.shared.engine;
        let swept = engine.progress.swept();
        // Until a report is accepted, each further reference of the shard costs its filer a fence.
        self.agenda.scan_reported(engine, swept);
        if !self.has_work() {
            self.upkeep.pruning.begin_if_idle(engine, self.agenda.next().since(swept));
        }
        if self.has_work() || self.upkeep.is_busy() {
            return Some(engine.timeline.instant(swept));
        }
        // An estimate, as a first tick to store.
        let mut next = self.agenda.next();
        loop {
            // Steps W1 to W3.
            self.shared.engine.progress.wakeup().set(next);
            let again = self.next_expiry();
            if again >= next {
                break;
            }
            next = again;
        }
        let engine = &self.shared.engine;
        if self.upkeep.begin_before_rest(engine, next.since(swept)) {
            return Some(engine.timeline.instant(swept));
        }
        (next != Tick::NEVER).then(|| engine.timeline.instant(next))
    }

    /// Returns the clock of the wheel. See [`Wheel::clock`](crate::Wheel::clock).
    ///
    /// # Examples
    ///
    /// ```
    /// let (wheel, sweeper) = tourbillon::Builder::new().build::<u64>()?;
    /// assert!(sweeper.clock().now() <= wheel.clock().now());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    /// The longest time for which the owner of the sweeper may rest, even if no timer is armed. See
    /// [`Tick::MAX_REST`].
    pub(crate) fn longest_rest(&self) -> Duration {
        self.shared.engine.timeline.duration(Tick::MAX_REST)
    }

    fn sweep_until(
        &mut self,
        now: Instant,
        limit: usize,
        mut on_expired: impl FnMut(Expired<T>),
    ) -> SweepReport {
        let shared = Arc::clone(&self.shared);
        let mut handed_over = HandedOver { engine: &shared.engine, now, last: None };
        let bounded = limit < usize::MAX;
        self.budget = if bounded { BUDGET.max(limit) } else { usize::MAX };
        let slice = if bounded { BUDGET / 2 } else { upkeep::SLICE };
        // A sweep in progress is finished first. Then the sweep of this call begins.
        let mut rounds = 1 + usize::from(self.is_under_way());
        let mut expired = 0;
        while rounds > 0 && expired < limit && self.budget > 0 {
            let wanted = limit - expired;
            if self.fill_batch(now, BATCH.min(wanted), wanted, slice) {
                rounds -= 1;
            }
            while expired < limit {
                let Some(timer) = self.batch.pop_front() else { break };
                expired += 1;
                handed_over.count(timer.deadline, 1);
                on_expired(timer);
            }
        }
        if self.batch.is_empty() {
            // All overdue timers are in it together.
            self.batch.shrink_to(BATCH);
        }
        let finished = rounds == 0 && self.batch.is_empty();
        SweepReport { expired, finished, next_deadline: self.next_deadline() }
    }

    /// Sweeps, as [`sweep_until`](Self::sweep_until) does, into a vector, but at most one sweep.
    /// Returns `true` if that sweep both began and ended in this call, so that everything that was
    /// due has been collected.
    pub(crate) fn collect(&mut self, limit: usize) -> (Vec<Expired<T>>, bool) {
        let (now, began_before) = (self.shared.clock.now(), self.is_under_way());
        self.budget = upkeep::SLICE.max(limit);
        let finished = self.fill_batch(now, limit, limit, upkeep::SLICE) && !began_before;
        if self.batch.is_empty() {
            return (Vec::new(), finished);
        }
        // The batch is handed over in its own memory. The next one will be about as large.
        let next = VecDeque::with_capacity(self.batch.len());
        let timers = Vec::from(replace(&mut self.batch, next));
        let mut handed_over = HandedOver { engine: &self.shared.engine, now, last: None };
        for same in timers.chunk_by(|one, other| one.deadline == other.deadline) {
            handed_over.count(same[0].deadline, same.len() as u64);
        }
        (timers, finished)
    }

    /// Collects due timers until the batch has about `batch` of them, and never more than `limit`.
    /// Returns `true` if the sweep has ended. Upkeep gets its slice in either case.
    fn fill_batch(&mut self, now: Instant, batch: usize, limit: usize, slice: usize) -> bool {
        let shared = Arc::clone(&self.shared);
        let engine = &shared.engine;
        engine.progress.wakeup().clear();
        let present = engine.timeline.floor(engine.timeline.wheel_instant(now));
        if !self.is_under_way() {
            self.stage = Stage::Begun;
            self.end = present;
        }
        // A sweep that was to end ahead of the clock, and was interrupted by a panic, goes no
        // further now.
        self.end = self.end.min(present);
        let scans = self.agenda.scan_reported(engine, engine.progress.swept());
        self.budget = self.budget.saturating_sub(scans);
        let finished = self.run_stages(engine, batch, limit);
        if finished {
            self.pending.give_back();
        }
        let took = self.shared.clock.now().saturating_duration_since(now);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        engine.progress.counters().add_sweep(nanos);
        self.upkeep.begin(engine);
        self.upkeep.advance(engine, &mut self.pending.kept, &mut self.agenda, finished, slice);
        finished
    }

    /// The main loop. Advances the sweep, stage by stage, until it ends, the batch has `batch`
    /// timers, or the budget is used up. Overdue timers are handed over together, up to `limit`.
    /// Returns `true` if the sweep has ended.
    fn run_stages(&mut self, engine: &Engine<T>, batch: usize, limit: usize) -> bool {
        loop {
            let all_visited = match self.stage {
                Stage::Ended => return true,
                Stage::Overdue => {
                    let all_visited = self.visit_pending(engine, limit);
                    self.batch.make_contiguous().sort_by_key(|timer| timer.deadline);
                    all_visited
                }
                Stage::Begun | Stage::Slots => self.visit_pending(engine, batch),
            };
            if !all_visited {
                return false;
            }
            match self.stage {
                Stage::Overdue => self.stage = Stage::Slots,
                Stage::Ended => return true,
                Stage::Begun => {
                    self.take_overdue(engine);
                    self.pending.recheck_kept();
                    self.stage = Stage::Overdue;
                }
                Stage::Slots if engine.progress.swept() >= self.end => self.stage = Stage::Ended,
                Stage::Slots if self.budget == 0 => return false,
                Stage::Slots => self.take_next_slots(engine),
            }
        }
    }

    /// Takes the slots that expire next, to be visited.
    fn take_next_slots(&mut self, engine: &Engine<T>) {
        let swept = engine.progress.swept();
        let mut scans = self.agenda.scan_reported(engine, swept);
        let farthest = self.overdue_taken.plus(Tick::MAX_REST);
        let next = self.agenda.next().min(self.upkeep.pruning.next_expiry());
        let tick = next.min(self.end).min(farthest);
        let taken = &mut self.pending.taken;
        scans += self.agenda.advance(engine, swept, tick, taken);
        taken.extend(self.upkeep.pruning.take_due(tick));
        taken.make_contiguous().sort_by_key(|taken| taken.at);
        if tick == farthest {
            self.take_overdue(engine);
        }
        // A kept block that was taken early may have references that expire now.
        self.pending.recheck_kept();
        self.budget = self.budget.saturating_sub(1 + scans);
    }

    /// Takes the overdue references, to be visited.
    fn take_overdue(&mut self, engine: &Engine<T>) {
        let swept = engine.progress.swept();
        self.pending.taken.extend(self.agenda.take_overdue(engine, swept));
        self.overdue_taken = swept;
    }

    /// Visits the pending references. Returns `false` if the batch is full or the budget is used up
    /// before all are visited.
    fn visit_pending(&mut self, engine: &Engine<T>, limit: usize) -> bool {
        loop {
            self.visit_read(engine, limit);
            if self.batch.len() >= limit {
                return false;
            }
            if self.pending.is_all_read() {
                return true;
            }
            if self.budget == 0 {
                return false;
            }
            self.budget = self.budget.saturating_sub(self.pending.read_next(engine));
        }
    }

    /// Visits the references that were read, and the others of their slot, while there is room in
    /// the batch.
    fn visit_read(&mut self, engine: &Engine<T>, limit: usize) {
        if self.pending.is_empty() {
            return;
        }
        let Source { shard: number, slot } = self.pending.from;
        let (shard, guard, before) = (engine.shard(number), pin(), self.batch.len());
        let expiry = SlotExpiry { slot, swept: engine.progress.swept() };
        let (hoard, mut blocks) = self.upkeep.trimming.hoards(number);
        let mut gathered =
            Gathered { requeued: Requeued::NOTHING, released: Released::NONE, hoard };
        let (mut discarded, mut requeued) = (0, 0);
        while self.batch.len() < limit {
            if self.pending.is_short() && self.budget > 0 {
                // References that are filed again need blocks at once.
                let blocks = blocks.as_deref_mut().filter(|_| requeued == 0);
                let cost = self.pending.read_next_block(engine, blocks);
                self.budget = self.budget.saturating_sub(cost);
            }
            let Some(reference) = self.pending.references.pop_front() else { break };
            match shard.visit(reference, expiry, &mut gathered, &guard) {
                VisitOutcome::Discarded => discarded += 1,
                VisitOutcome::Requeued => requeued += 1,
                VisitOutcome::Expired(value, id, tick) => {
                    if self.stamp.tick != tick {
                        self.stamp = Stamp { tick, deadline: engine.timeline.instant(tick) };
                    }
                    let deadline = self.stamp.deadline;
                    self.batch.push_back(Expired { value, id, deadline });
                }
            }
        }
        self.agenda.note_filed(engine, number, gathered.requeued.earliest);
        shard.slab.release(&mut gathered.released, &guard);
        let ended = (self.batch.len() - before) as u64;
        engine.make_room(number, ended);
        let counters = engine.progress.counters();
        counters.add(SweepCount::Ended, ended);
        counters.add(SweepCount::Discarded, discarded);
        counters.add(SweepCount::Requeued, requeued);
        // A reference filed again replaces the one visited.
        let Filed { references, blocks } = gathered.requeued.filed;
        counters.add(SweepCount::Extra, u64::from(references).saturating_sub(requeued));
        counters.add(SweepCount::BlocksMade, u64::from(blocks));
    }

    /// Returns `true` if a sweep has stopped before its end.
    fn is_under_way(&self) -> bool {
        self.stage != Stage::Ended
    }

    /// Returns `true` if there are references to visit or timers to hand over.
    fn has_work(&self) -> bool {
        self.is_under_way() || !self.batch.is_empty()
    }

    /// Returns the tick of the next sweep, or [`Tick::NEVER`] if nothing is pending.
    fn next_expiry(&mut self) -> Tick {
        let engine = &self.shared.engine;
        let swept = engine.progress.swept();
        self.agenda.scan_reported(engine, swept);
        if self.agenda.has_overdue() || self.pending.has_news(engine) {
            return swept;
        }
        self.agenda.next()
    }
}

impl<T> Drop for Sweeper<T> {
    fn drop(&mut self) {
        let engine = &self.shared.engine;
        let timers: Vec<_> = std::mem::take(&mut self.batch)
            .into_iter()
            .map(|timer| {
                let deadline = engine.timeline.wheel_instant(timer.deadline);
                (timer.id, engine.timeline.ceil(deadline), timer.value)
            })
            .collect();
        // They have not been handed over after all, but their references were visited and
        // discarded.
        engine.progress.counters().take_back(SweepCount::Ended, timers.len() as u64);
        engine.progress.counters().add(SweepCount::Discarded, timers.len() as u64);
        engine.keep_for_drain(timers);
        // This wakes the driver. A waker that panics while a handler's panic unwinds would abort
        // the process.
        match std::thread::panicking() {
            true => quietly(|| engine.close()),
            false => engine.close(),
        }
    }
}

impl<T> fmt::Debug for Sweeper<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sweeper")
            .field("pending", &self.pending.taken.len())
            .finish_non_exhaustive()
    }
}
