//! [`KeyedTimer`]: the value type of the wheel; and the wheel's operations for both kinds of
//! deadline.

#![forbid(unsafe_code)]

use super::drain::DrainToken;
use crate::{BeyondRange, Refusal, TimerId, Wheel};
use std::fmt;
use std::time::{Duration, Instant};

/// The value type of the wheel under [`KeyedTimers`](super::KeyedTimers). Pass it to
/// [`KeyedTimers::fire`](super::KeyedTimers::fire) when it expires.
///
/// # Examples
///
/// One iteration of an event loop that sweeps for its keys:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::keyed::{KeyedTimer, KeyedTimers};
/// use tourbillon::{Builder, ManualClock, Sweeper};
///
/// type Peers = KeyedTimers<u32, String>;
/// fn due(sweeper: &mut Sweeper<KeyedTimer<u32>>, peers: &Peers) -> Vec<(u32, String)> {
///     let mut due = Vec::new();
///     let _ = sweeper.sweep(|timer| due.extend(peers.fire(timer)));
///     due
/// }
///
/// let clock = ManualClock::new();
/// let (wheel, mut sweeper) = Builder::new().clock(clock.clone()).build()?;
/// let peers = KeyedTimers::new(wheel);
/// peers.insert(7, String::from("silent"), Duration::from_secs(30))?;
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(due(&mut sweeper, &peers), [(7, String::from("silent"))]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyedTimer<K>(pub(super) TimerKind<K>);

/// The kinds of timers in the wheel.
pub(super) enum TimerKind<K> {
    /// The key is due.
    Key(K),
    /// A part of a drain is due to run.
    Part(DrainToken),
}

impl<K> KeyedTimer<K> {
    /// Runs the part of a drain on this thread, because no handler will. The timer of a key is only
    /// dropped.
    pub(super) fn run_part_here(self) {
        if let TimerKind::Part(token) = self.0 {
            token.run_quietly();
        }
    }
}

impl<K> fmt::Debug for KeyedTimer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTimer").finish_non_exhaustive()
    }
}

/// The time when a key fires.
#[derive(Clone, Copy)]
pub(super) enum When {
    After(Duration),
    At(Instant),
}

impl When {
    pub(super) fn insert<T: Send>(self, wheel: &Wheel<T>, value: T) -> Result<TimerId, Refusal> {
        let inserted = match self {
            When::After(delay) => wheel.insert(value, delay),
            When::At(deadline) => wheel.insert_at(value, deadline),
        };
        inserted.map_err(Refusal::from)
    }

    pub(super) fn reset<T: Send>(self, wheel: &Wheel<T>, id: TimerId) -> Result<bool, BeyondRange> {
        match self {
            When::After(delay) => wheel.reset(id, delay),
            When::At(deadline) => wheel.reset_at(id, deadline),
        }
    }
}
