//! The plan of a run, drawn from a seed, with the life of each timer and the order of the faults.
//!
//! The same seed gives the same plan. Its outcome differs from run to run, because processes race.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The duration of a lease.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// The number of workers.
pub(crate) const WORKERS: usize = 3;

/// The number of partitions of the store.
pub(crate) const PARTITIONS: u16 = 16;

/// One in this many timers repeats.
const REPEATS_ONE_IN: u32 = 16;

/// The approximate duration of a round, with one fault of each kind.
const ROUND: u64 = 20_000;

/// The number of timers for each further round.
const TIMERS_A_ROUND: usize = 12_500;

/// The time before the first fault, long enough for some timers to exist.
const LEAD: u64 = 2_000;

const OF_REDIS: [Kind; 3] = [Kind::RestartRedis, Kind::MoveSlot, Kind::FailOver];

const OF_POSTGRES: [Kind; 4] =
    [Kind::RestartPostgres, Kind::CutPostgres, Kind::SilencePostgres, Kind::Promote];

/// The kind of servers of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sort {
    Redis,
    Postgres,
}

impl Sort {
    /// Returns the kinds of faults of the servers.
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Redis => &OF_REDIS,
            Self::Postgres => &OF_POSTGRES,
        }
    }

    /// Returns the number of parts of the store that a fault may affect.
    fn parts(self) -> usize {
        match self {
            Self::Redis => usize::from(PARTITIONS),
            Self::Postgres => 1,
        }
    }

    /// Returns the number of servers.
    pub(crate) fn nodes(self) -> usize {
        match self {
            Self::Redis => 6,
            Self::Postgres => 2,
        }
    }
}

/// The behaviour of a handler.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Handling {
    /// Succeeds at once.
    Well,
    /// The first attempts fail.
    FailsFirst(u32),
    /// All attempts fail, and the timer becomes a dead letter.
    Fails,
    /// The first attempt fails for good, and the timer becomes a dead letter.
    FailsForGood,
    /// Asks to be delivered again, without a counted attempt, until this many milliseconds after
    /// the planned time.
    Snoozes(u64),
    /// The first attempt takes this many milliseconds, which may be several leases.
    Slow(u64),
    /// Each attempt takes this many milliseconds.
    Long(u64),
}

impl Handling {
    fn draw(random: &mut Rng) -> Self {
        match random.u32(..100) {
            0..8 => Self::FailsFirst(random.u32(1..=2)),
            8..10 => Self::Fails,
            10..12 => Self::Slow(random.u64(500..7_000)),
            12..13 => Self::FailsForGood,
            13..18 => Self::Snoozes(random.u64(100..2_000)),
            _ => Self::Well,
        }
    }

    /// Returns the number of attempts. Faults cost attempts too, and must not cause dead letters.
    pub(crate) fn attempts(self) -> u32 {
        if matches!(self, Self::Fails) { 3 } else { 20 }
    }
}

/// The payload of a timer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) handling: Handling,
    /// The earliest planned time of a delivery that cancels its repetition.
    pub(crate) until: Option<u64>,
}

/// The repetition of a timer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repetition {
    /// The interval in milliseconds.
    pub(crate) every: u64,
    /// The number of intervals before a delivery cancels it.
    pub(crate) times: u64,
}

impl Repetition {
    fn draw(random: &mut Rng) -> Self {
        Self { every: random.u64(250..1_500), times: random.u64(3..=8) }
    }
}

/// A change of a timer after its insertion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Cancel,
    /// To another time.
    Move(u64),
    /// By a timer at another time.
    Replace(u64),
    /// It is paused until then.
    Pause(u64),
}

/// The life of a timer. All times are milliseconds from the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) scheduled: u64,
    pub(crate) planned: u64,
    pub(crate) handling: Handling,
    pub(crate) repetition: Option<Repetition>,
    /// The time of a change, and the change. A repetition is not moved or replaced.
    pub(crate) change: Option<(u64, Change)>,
}

impl Life {
    fn draw(random: &mut Rng, lasts: u64) -> Self {
        let scheduled = random.u64(..lasts * 4 / 5);
        let planned = scheduled + random.u64(50..lasts / 5);
        let handling = Handling::draw(random);
        let repetition = (random.u32(..REPEATS_ONE_IN) == 0).then(|| Repetition::draw(random));
        let due = planned + repetition.map_or(0, |it| it.every * random.u64(..it.times));
        // Half of the changes happen when the timer is due.
        let at = match random.bool() {
            true => random.u64(scheduled..due),
            false => (due + random.u64(..100)).saturating_sub(50),
        };
        let later = planned.max(at) + random.u64(100..5_000);
        let change = match random.u32(..100) {
            0..8 => Some((at, Change::Cancel)),
            8..14 if repetition.is_none() => Some((at, Change::Move(later))),
            14..20 if repetition.is_none() => Some((at, Change::Replace(later))),
            20..28 => Some((at, Change::Pause(at + random.u64(500..6_000)))),
            _ => None,
        };
        Self { scheduled, planned, handling, repetition, change }
    }
}

/// A fault that is injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// A worker is killed, and another one started.
    KillWorker,
    /// A worker's process is stopped for longer than its lease.
    PauseWorker,
    /// A worker's connections are closed, and refused for longer than its lease.
    CutWorker,
    /// Nothing comes through on a worker's connections for longer than its lease, and then
    /// everything does.
    SilenceWorker,
    /// A master is killed, and started again with its file.
    RestartRedis,
    /// The slot of a partition moves to another master, key by key.
    MoveSlot,
    /// A replica takes over from its master once it is up to date.
    FailOver,
    /// The primary is killed with all its processes, and started again with its data.
    RestartPostgres,
    /// All connections of the primary are ended, again and again.
    CutPostgres,
    /// The primary is stopped for longer than a lease.
    SilencePostgres,
    /// The primary is killed, its standby is promoted, and the old primary becomes its standby.
    Promote,
    /// The store is paused for longer than a lease.
    PauseStore,
}

impl Kind {
    /// Returns `true` for a fault of a worker, and `false` for one of the store.
    pub(crate) fn is_of_worker(self) -> bool {
        OF_WORKERS.contains(&self)
    }
}

const OF_WORKERS: [Kind; 4] =
    [Kind::KillWorker, Kind::PauseWorker, Kind::CutWorker, Kind::SilenceWorker];

const OF_STORE: [Kind; 1] = [Kind::PauseStore];

/// The clocks, each as the number of seconds that it is ahead.
#[derive(Debug)]
pub(crate) struct Clocks {
    pub(crate) workers: [i64; WORKERS],
    /// The clocks of the servers. The masters' clocks or the primary's count.
    pub(crate) nodes: Vec<i64>,
}

impl Clocks {
    /// Draws clocks of workers, and for every other seed clocks of servers.
    fn draw(random: &mut Rng, seed: u64, servers: Sort) -> Self {
        let workers = std::array::from_fn(|_| random.i64(-5..=5));
        let differ = i64::from(seed.is_multiple_of(2));
        let nodes = (0..servers.nodes()).map(|_| differ * random.i64(-2..=2)).collect();
        Self { workers, nodes }
    }

    /// Returns how many milliseconds a timer may come before its time by the clock of this process,
    /// because the clock of a node is ahead.
    pub(crate) fn ahead(&self) -> u64 {
        let most = self.nodes.iter().max().copied().unwrap_or_default();
        1_000 * u64::try_from(most).unwrap_or_default()
    }

    /// Returns how many milliseconds a worker may believe in a lease that has expired by the clock
    /// of the next master.
    pub(crate) fn slack(&self) -> u64 {
        let millis = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        if self.nodes.iter().all(|&ahead| ahead == 0) { 0 } else { millis }
    }
}

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    /// The time without a fault before it.
    pub(crate) after: Duration,
    pub(crate) kind: Kind,
    /// The worker, or the partition with the slot or master of Redis.
    pub(crate) whom: usize,
    pub(crate) lasts: Duration,
}

/// The timers and the faults of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) lives: Vec<Life>,
    /// The faults of workers, the faults of servers, and the pauses of the store, in parallel.
    pub(crate) faults: [Vec<Fault>; 3],
    pub(crate) clocks: Clocks,
}

impl Plan {
    pub(crate) fn draw(seed: u64, timers: usize, servers: Sort) -> Self {
        let mut random = Rng::with_seed(seed);
        let rounds = 1 + timers / TIMERS_A_ROUND;
        let lasts = LEAD + ROUND * rounds as u64;
        let faults = [
            row(&mut random, rounds, &OF_WORKERS, WORKERS),
            row(&mut random, rounds, servers.kinds(), servers.parts()),
            row(&mut random, rounds, &OF_STORE, 1),
        ];
        let clocks = Clocks::draw(&mut random, seed, servers);
        let lives = (0..timers).map(|_| Life::draw(&mut random, lasts)).collect();
        Self { lives, faults, clocks }
    }
}

/// Draws each kind once per round, in random order.
fn row(random: &mut Rng, rounds: usize, kinds: &[Kind], whom: usize) -> Vec<Fault> {
    let mut faults = Vec::new();
    for _ in 0..rounds {
        let mut kinds = kinds.to_vec();
        random.shuffle(&mut kinds);
        for kind in kinds {
            let after = Duration::from_millis(match kind {
                Kind::PauseStore => random.u64(6_000..15_000),
                _ => random.u64(300..1_500),
            });
            let lasts = Duration::from_millis(match kind {
                Kind::KillWorker | Kind::RestartRedis | Kind::RestartPostgres | Kind::Promote => {
                    random.u64(200..1_500)
                }
                Kind::MoveSlot | Kind::FailOver => 0,
                _ => random.u64(2_500..4_500),
            });
            faults.push(Fault { after, kind, whom: random.usize(..whom), lasts });
        }
    }
    if let Some(first) = faults.first_mut() {
        first.after += Duration::from_millis(LEAD);
    }
    faults
}
