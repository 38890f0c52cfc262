//! [`TimerPlan`], what callers do with a timer.

use super::faults::Fault;
use super::plan::Setting;
use super::world::{MILLISECOND, Nanos, SECOND};

/// How long before the end the last timer is due.
const REST: Nanos = 120 * SECOND;

/// The milliseconds until the last timer of the usual size is due.
const SHORT: u64 = 480_000;

/// What a handler does, as the first byte of the payload.
pub(crate) mod handlers {
    pub(crate) const QUICK: u8 = 0;
    pub(crate) const SLOW: u8 = 1;
    pub(crate) const LONGER_THAN_THE_LEASE: u8 = 2;
    pub(crate) const FAILS_ONCE: u8 = 3;
    pub(crate) const FAILS: u8 = 4;
    pub(crate) const PANICS_ONCE: u8 = 5;
    pub(crate) const ASKS_AGAIN: u8 = 6;
    pub(crate) const LIKE_A_WEBHOOK: u8 = 7;
}

/// A timer, as its caller inserts and changes it. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct TimerPlan {
    pub(crate) number: usize,
    pub(crate) inserted: u64,
    pub(crate) delay: u64,
    pub(crate) handler: u8,
    /// The interval at which it repeats until all repetitions are cancelled.
    pub(crate) every: Option<u64>,
    /// The changes, each with the wait before it.
    pub(crate) changes: Vec<(u64, Change)>,
}

/// A change of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Cancel,
    Reset(u64),
    RunNow,
    /// To be resumed after so long.
    Pause(u64),
    Keep(u64),
    Update(u64),
    Replace(u64),
}

impl TimerPlan {
    /// Draws the timers of a fleet.
    pub(crate) fn drawn(
        random: &mut fastrand::Rng,
        setting: Setting,
        faults: &[Fault],
    ) -> Vec<Self> {
        let end = (setting.length - REST) / MILLISECOND;
        let mut timers = Vec::new();
        while timers.len() < setting.timers {
            let inserted = moment(random, faults, end);
            // Some are inserted at the same time, and due at the same time.
            let several = if random.u32(..8) == 0 { random.usize(2..40) } else { 1 };
            let delay = delay(random, end - inserted);
            for _ in 0..several.min(setting.timers - timers.len()) {
                timers.push(Self::one(random, timers.len(), inserted, delay, end));
            }
        }
        timers
    }

    fn one(random: &mut fastrand::Rng, number: usize, inserted: u64, delay: u64, end: u64) -> Self {
        let handler = match random.u32(..40) {
            0 | 1 => handlers::SLOW,
            2 => handlers::LONGER_THAN_THE_LEASE,
            3 | 4 => handlers::FAILS_ONCE,
            5 | 6 => handlers::FAILS,
            7 => handlers::PANICS_ONCE,
            8 => handlers::ASKS_AGAIN,
            _ => handlers::QUICK,
        };
        let is_short = matches!(handler, handlers::QUICK | handlers::FAILS_ONCE);
        // As often in a long run as in a short one.
        let least = 5000 * end.div_ceil(SHORT);
        let every = (is_short && random.u32(..50) == 0).then(|| random.u64(least..12 * least));
        let (mut changes, mut left) = (Vec::new(), end - inserted);
        while changes.len() < 3 && random.u32(..4) == 0 {
            let wait = random.u64(..=(delay + 100).min(left));
            left -= wait;
            changes.push((wait, Change::drawn(random, left)));
        }
        Self { number, inserted, delay, handler, every, changes }
    }
}

impl Change {
    fn drawn(random: &mut fastrand::Rng, left: u64) -> Self {
        let time = random.u64(..=left.min(20_000));
        match random.u32(..9) {
            0 | 1 => Self::Cancel,
            2 | 3 => Self::Reset(time),
            4 => Self::RunNow,
            5 => Self::Pause(time),
            6 => Self::Keep(time),
            7 => Self::Update(time),
            _ => Self::Replace(time),
        }
    }
}

/// Draws when a timer is inserted: at any time, or about the beginning or the end of a fault.
fn moment(random: &mut fastrand::Rng, faults: &[Fault], end: u64) -> u64 {
    let place = random.usize(..faults.len() * 2 + 1);
    let Some(fault) = faults.get(place / 2).filter(|_| random.u32(..3) == 0) else {
        return random.u64(..end);
    };
    let edge = if place.is_multiple_of(2) { fault.begin } else { fault.end() } / MILLISECOND;
    (edge.saturating_sub(1000) + random.u64(..3000)).min(end)
}

/// Draws a delay. Some timers are due soon, some about where the windows of workers end, and some
/// later than that but before what workers know of an idle partition ends.
fn delay(random: &mut fastrand::Rng, most: u64) -> u64 {
    let delay = match random.u32(..5) {
        0 => random.u64(..5000),
        1 | 2 => random.u64(8900..10_100),
        3 => random.u64(10_000..45_000),
        _ => random.u64(..=most),
    };
    delay.min(most)
}
