//! What is measured: the workloads, and the delays and victims they use, the same for all systems.

use clap::ValueEnum;
use fastrand::Rng;
use serde::Serialize;
use std::time::Duration;

/// So many operations can be told from what else the process does.
const FEWEST: u32 = 100_000;

/// What a system is asked to do while its CPU time is taken.
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
    /// Its new delay, from the moment of the operation.
    pub(crate) delay: Duration,
}

/// What a workload arms before it (or as it) is measured, and the operations it then measures.
///
/// Both live as long as the process, which ends with the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The delay of every timer.
    pub(crate) delays: &'static [Duration],
    /// As many operations as are measured: a window that begins with nothing stale would never see
    /// what lazy deletion owes.
    pub(crate) warm_up: &'static [Move],
    /// As many as timers, and where timers may be moved without end no fewer than [`FEWEST`].
    pub(crate) moves: &'static [Move],
}

impl Workload {
    /// All of them, in the order they are reported.
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

    /// What stands above its table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Insert => "insert: arm one more, from none to all",
            Self::CancelInsert => "cancel_insert: cancel a random timer and insert a new one",
            Self::ResetLater => "reset_later: push a random timer back by 3 to 10 s",
            Self::ResetEarlier => "reset_earlier: pull a random timer forward by 3 to 10 s",
            Self::Fire => "fire: expire all, for each timer",
        }
    }

    /// The delays and operations of one caller with so many timers: at random, but always the
    /// same.
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

    /// The delay of a new timer in seconds, 30 to 90. A timer that is to fire is due within the
    /// second that begins when all are armed, which takes less than 1 µs for each and a second.
    fn delay(self, timers: u32, random: &mut Rng) -> f64 {
        match self {
            Self::Fire => 1.0 + f64::from(timers) * 1e-6 + random.f64(),
            _ => 30.0 + 60.0 * random.f64(),
        }
    }

    /// Any timer; to be pulled forward, one that has yet far to go.
    fn victim(self, seconds: &[f64], random: &mut Rng) -> usize {
        loop {
            let place = random.usize(..seconds.len());
            if self != Self::ResetEarlier || seconds[place] > 25.0 {
                return place;
            }
        }
    }
}

/// How far a timer is moved, in seconds.
fn step(random: &mut Rng) -> f64 {
    3.0 + 7.0 * random.f64()
}
