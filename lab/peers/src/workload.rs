//! The workloads, and their delays and victims, which are the same for all systems.

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;
use std::time::Duration;

/// The minimum number of operations that stands out from the other work of the process.
const FEWEST: u32 = 100_000;

/// The operation whose CPU time is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// Arm timers, from none to all
    Insert,
    /// Cancel a random timer and insert a new one
    CancelInsert,
    /// Push a random timer back
    ResetLater,
    /// Pull a random timer forward
    ResetEarlier,
    /// Expire all timers
    Fire,
}

/// An operation on the timer at a place among the caller's timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Move {
    /// The timer's place.
    pub(crate) place: usize,
    /// Its new delay, counted from the operation.
    pub(crate) delay: Duration,
}

/// The timers that a workload arms, and the operations that it makes on them.
///
/// They live as long as the process, which ends with the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The delay of every timer.
    pub(crate) delays: &'static [Duration],
    /// As many operations as are measured. Without them nothing would be stale at the start, and
    /// the cost of lazy deletion would be missed.
    pub(crate) warm_up: &'static [Move],
    /// As many operations as timers, and at least [`FEWEST`] if timers may be moved any number of
    /// times.
    pub(crate) moves: &'static [Move],
}

impl Workload {
    /// All workloads, in the order of the tables.
    pub(crate) const ALL: [Self; 5] =
        [Self::Insert, Self::CancelInsert, Self::ResetLater, Self::ResetEarlier, Self::Fire];

    /// Its name on the command line and in the results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::CancelInsert => "cancel_insert",
            Self::ResetLater => "reset_later",
            Self::ResetEarlier => "reset_earlier",
            Self::Fire => "fire",
        }
    }

    /// The line above its table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Insert => "insert: arm one more, from none to all",
            Self::CancelInsert => "cancel_insert: cancel a random timer and insert a new one",
            Self::ResetLater => "reset_later: push a random timer back by 3 to 10 s",
            Self::ResetEarlier => "reset_earlier: pull a random timer forward by 3 to 10 s",
            Self::Fire => "fire: expire all, for each timer",
        }
    }

    /// The delays and operations of one caller with `timers` timers. They are random, but the same
    /// in each run.
    pub(crate) fn plan(self, timers: u32, caller: u32) -> Plan {
        let mut random = Rng::with_seed(7 + u64::from(caller));
        let mut seconds: Vec<f64> = (0..timers).map(|_| self.delay(timers, &mut random)).collect();
        let delays: Vec<_> = seconds.iter().map(|&delay| Duration::from_secs_f64(delay)).collect();
        let operations = 2 * match self {
            Self::Insert | Self::Fire => 0,
            Self::ResetEarlier => timers,
            Self::CancelInsert | Self::ResetLater => timers.max(FEWEST),
        };
        let moves: Vec<_> = (0..operations)
            .map(|_| {
                let place = self.victim(&seconds, &mut random);
                seconds[place] = match self {
                    Self::ResetLater => seconds[place] + step(&mut random),
                    Self::ResetEarlier => seconds[place] - step(&mut random),
                    _ => self.delay(timers, &mut random),
                };
                Move { place, delay: Duration::from_secs_f64(seconds[place]) }
            })
            .collect();
        let (warm_up, moves) = moves.leak().split_at(operations as usize / 2);
        Plan { delays: delays.leak(), warm_up, moves }
    }

    /// The delay of a new timer in seconds, 30 to 90.
    ///
    /// A timer that is to fire is due within one second, which begins after all are armed. Arming
    /// may take 1 s and 1 µs for each timer.
    fn delay(self, timers: u32, random: &mut Rng) -> f64 {
        match self {
            Self::Fire => 1.0 + f64::from(timers) * 1e-6 + random.f64(),
            _ => 30.0 + 60.0 * random.f64(),
        }
    }

    /// Any timer. If it is to be pulled forward, one whose deadline is far enough away.
    fn victim(self, seconds: &[f64], random: &mut Rng) -> usize {
        loop {
            let place = random.usize(..seconds.len());
            if self != Self::ResetEarlier || seconds[place] > 25.0 {
                return place;
            }
        }
    }
}

/// The distance that a timer is moved, in seconds.
fn step(random: &mut Rng) -> f64 {
    3.0 + 7.0 * random.f64()
}
