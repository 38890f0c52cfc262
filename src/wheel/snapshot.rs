//! [`Snapshot`]: the timers and slots of a wheel at one time.

#![forbid(unsafe_code)]

use crate::wheel::engine::Engine;
use crate::wheel::memory::pin;
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The state of a wheel at one time, returned by [`Wheel::snapshot`].
///
/// # Examples
///
/// The distribution of a server's deadlines:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build()?;
/// for seconds in [1, 1, 30] {
///     wheel.insert("connection", Duration::from_secs(seconds))?;
/// }
/// let snapshot = wheel.snapshot();
/// let near = snapshot.ahead().filter(|(bound, _)| *bound < Duration::from_secs(5));
/// assert_eq!(near.map(|(_, timers)| timers).sum::<u64>(), 2);
/// assert_eq!(snapshot.next.map(|at| at - snapshot.taken), Some(Duration::from_secs(1)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time at which the snapshot was taken, by the wheel's clock.
    pub taken: Instant,
    /// The number of armed timers.
    pub armed: u64,
    /// The earliest deadline of an armed timer, which may have passed. A snapshot has no ids, since
    /// a timer must not be cancelled before its insert has returned the id.
    pub next: Option<Instant>,
    /// The levels of the wheel, the finest first.
    pub levels: Vec<Level>,
    /// The slots that hold [references](Slot::references), ordered by level and then by expiry.
    /// References that are overdue, or that the sweeper has already taken out of their slots, are
    /// not included.
    pub slots: Vec<Slot>,
    ahead: Vec<(Duration, u64)>,
}

/// One level of the wheel, summed over all shards.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build()?;
/// wheel.insert("soon", Duration::from_secs(1))?;
/// let finest = wheel.snapshot().levels[0];
/// assert_eq!((finest.slot, finest.occupied), (Duration::from_millis(1), 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Level {
    /// The span of time that one slot covers.
    pub slot: Duration,
    /// The number of slots.
    pub slots: usize,
    /// The number of slots that may hold references to timers, stale ones included.
    pub occupied: usize,
}

/// One slot of the wheel, summed over all shards, with the number of [references](Self::references)
/// that the sweeper will visit when it gets there.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Builder, ManualClock};
///
/// let (wheel, _sweeper) = Builder::new().clock(ManualClock::new()).build()?;
/// for _ in 0..3 {
///     wheel.insert("idle", Duration::from_secs(30))?;
/// }
/// let snapshot = wheel.snapshot();
/// let (slot, width) = (snapshot.slots[0], snapshot.levels[1].slot);
/// assert_eq!((slot.level, slot.references), (1, 3));
/// assert!(snapshot.next.is_some_and(|due| due >= slot.expiry && due < slot.expiry + width));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Slot {
    /// The index of the slot's level in [`Snapshot::levels`]. Level 0 is the finest.
    pub level: usize,
    /// The time at which the slot is swept next. Timers of the finest level are then due, and those
    /// of other levels move to a finer one.
    pub expiry: Instant,
    /// The number of references in the slot. A reference refers to the entry of a timer. It becomes
    /// stale when the timer is cancelled or its deadline moves to another slot, and stale
    /// references are included. An estimate while the slot is being swept.
    pub references: u64,
}

impl Snapshot {
    /// Returns a histogram of the time left until the deadlines, as upper bounds and numbers of
    /// timers. The bounds are powers of two of the wheel's resolution. The first bucket includes
    /// timers that were due.
    pub fn ahead(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.ahead.iter().copied()
    }

    fn of<T>(engine: &Engine<T>, taken: Instant) -> Self {
        let timeline = &engine.timeline;
        let now = timeline.floor(timeline.wheel_instant(taken));
        let (mut counts, mut first) = (Vec::<u64>::new(), None::<Tick>);
        engine.for_each_armed(|deadline| {
            let bucket = deadline.since(now).max(1).next_power_of_two().ilog2() as usize;
            if counts.len() <= bucket {
                counts.resize(bucket + 1, 0);
            }
            counts[bucket] += 1;
            if first.is_none_or(|earliest| deadline < earliest) {
                first = Some(deadline);
            }
        });
        Self {
            taken,
            armed: counts.iter().sum(),
            next: first.map(|deadline| timeline.instant(deadline)),
            levels: levels(engine),
            slots: slots(engine),
            ahead: (0..).map(|bucket| timeline.duration(1 << bucket)).zip(counts).collect(),
        }
    }
}

fn levels<T>(engine: &Engine<T>) -> Vec<Level> {
    let mut levels = Vec::<Level>::new();
    for shard in &engine.shards {
        for (number, (ticks, slots, occupied)) in shard.hierarchy.levels().enumerate() {
            if levels.len() == number {
                let slot = engine.timeline.duration(ticks);
                levels.push(Level { slot, slots: 0, occupied: 0 });
            }
            levels[number].slots += slots;
            levels[number].occupied += occupied;
        }
    }
    levels
}

fn slots<T>(engine: &Engine<T>) -> Vec<Slot> {
    let mut slots = BTreeMap::<(usize, Tick), u64>::new();
    for shard in &engine.shards {
        shard.hierarchy.for_each_slot(
            engine.progress.swept(),
            &pin(),
            |level, expiry, references| {
                *slots.entry((level, expiry)).or_default() += references;
            },
        );
    }
    let slot = |((level, expiry), references)| Slot {
        level,
        expiry: engine.timeline.instant(expiry),
        references,
    };
    slots.into_iter().map(slot).collect()
}

impl<T: Send> Wheel<T> {
    /// Returns the state of the wheel. A timer that is inserted, reset or ended in the meantime may
    /// or may not be included. No other operation waits for a snapshot.
    ///
    /// O(entries of the wheel, references and slots), some nanoseconds each. That suits a
    /// dashboard, but not every turn of an event loop. The [counters](Self::metrics) are much
    /// cheaper.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let (wheel, _sweeper) = tourbillon::Builder::new().build()?;
    /// let id = wheel.insert("idle", Duration::from_secs(30))?;
    /// let snapshot = wheel.snapshot();
    /// assert_eq!(snapshot.armed, 1);
    /// assert_eq!(snapshot.next, wheel.deadline(id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::of(&self.shared.engine, self.shared.clock.now())
    }
}
