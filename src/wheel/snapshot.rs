//! [`Snapshot`]: what a wheel holds at a moment, looked at timer by timer and slot by slot.

#![forbid(unsafe_code)]

use crate::wheel::engine::Engine;
use crate::wheel::memory::pin;
use crate::wheel::tick::Tick;
use crate::wheel::wheel::Wheel;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What a wheel holds at a moment; made by [`Wheel::snapshot`].
///
/// # Examples
///
/// How far ahead the timers of a server are:
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
    /// When it was taken, by the wheel's clock.
    pub taken: Instant,
    /// Timers that were armed.
    pub armed: u64,
    /// The deadline of the timer that is due first; it may have passed. A snapshot has no ids,
    /// since a timer must not be cancelled before its insert has returned the id.
    pub next: Option<Instant>,
    /// The levels of slots, the finest first.
    pub levels: Vec<Level>,
    /// The slots that hold [references](Slot::references), by level, and in the order in which they
    /// are swept. References that are overdue, or that the sweeper has taken out of their slots,
    /// are not included.
    pub slots: Vec<Slot>,
    ahead: Vec<(Duration, u64)>,
}

/// One level of slots, of all shards together.
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
    /// How much time a slot is for.
    pub slot: Duration,
    /// How many slots there are.
    pub slots: usize,
    /// How many of them may hold references to timers, stale ones included.
    pub occupied: usize,
}

/// A slot that holds [references](Self::references) of timers, of all shards together.
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
    /// Which of the [levels](Snapshot::levels) it is on; 0 is the finest.
    pub level: usize,
    /// When it is swept next: timers of the finest level are due then, others are filed anew.
    pub expiry: Instant,
    /// The number of references that it holds. A reference refers to the entry of a timer. It
    /// becomes stale when the timer is cancelled or its deadline moves to another slot, and stale
    /// references are included. An estimate while the slot is being swept.
    pub references: u64,
}

impl Snapshot {
    /// How many timers were ahead by so much at most, and by more than the bound before: the bounds
    /// are powers of two of the wheel's resolution. Those that were due are in the first.
    pub fn ahead(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.ahead.iter().copied()
    }

    fn of<T>(engine: &Engine<T>, taken: Instant) -> Self {
        let timeline = &engine.timeline;
        let now = timeline.floor(taken);
        let (mut counts, mut first) = (Vec::<u64>::new(), None::<Tick>);
        engine.for_each_armed(&pin(), |deadline| {
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
    /// Returns what the wheel holds. A timer that is inserted, reset or ended in the meantime may
    /// be included or not. No other operation waits for a snapshot. O(entries of the wheel,
    /// references and slots), some nanoseconds each, so it suits a dashboard and not each turn of
    /// an event loop. What is [counted](Self::metrics) costs nothing.
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
        Snapshot::of(&self.inner.engine, self.inner.clock.now())
    }
}
