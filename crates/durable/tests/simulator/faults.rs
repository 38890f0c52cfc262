//! [`Fault`], something that goes wrong for a while, and [`Disturbance`], which timers it delays.

use super::plan::Setting;
use super::world::{MILLISECOND, Nanos, SECOND};

/// The maximum distance of a server's clock from the true time, in milliseconds.
pub(crate) const MOST_AHEAD: i64 = 2000;

/// The maximum distance between the clocks of two servers.
const APART: Nanos = 2 * MOST_AHEAD.unsigned_abs() * MILLISECOND;

/// How long after several faults everything is prompt again.
const RECOVERY: Nanos = 9 * SECOND;

/// How long after a fault of heartbeats workers take over partitions again.
const HEARTBEATS: Nanos = 3 * SECOND;

/// How long after faults of the network a request may arrive, and make a worker count as alive.
const HELD_BACK: Nanos = 14 * SECOND;

/// Faults that are further apart than this do not add up.
const ISOLATED: Nanos = 15 * SECOND;

/// How many messages resume a store, one after the other: a request, its reply, and a request to
/// each partition.
const RESUMES: u64 = 3;

/// How long after a pause everything is prompt again, if the messages that end it are not slow.
const RESUMED: Nanos = 2500 * MILLISECOND;

/// How much later a lease is while another server does not reply. A page waits for it, and a worker
/// that has subscribed there finds after two seconds that notices are lost.
const ELSEWHERE: Nanos = 3 * SECOND;

/// How late a timer is at most that the owner of its partition cannot lease, because other workers
/// look for stragglers: 5 s, and one second for each partition.
const STRAGGLING: Nanos = 23 * SECOND;

/// A fault from a time on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) begin: Nanos,
    pub(crate) length: Nanos,
    pub(crate) kind: Kind,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A worker dies. Another one starts at the end.
    Kill { worker: usize },
    /// A worker is asked to end. Another one starts at the end. This is not a fault for timers.
    Leave { worker: usize },
    /// A worker is slow from now on: each handler takes longer, and each request and reply.
    Drag { worker: usize, handlers: Nanos, network: Nanos },
    /// A process is suspended.
    Suspend { worker: usize },
    /// Nothing passes between a worker and a server.
    Cut { worker: usize, server: usize },
    /// Requests of a worker reach a server, and nothing comes back.
    Mute { worker: usize, server: usize },
    /// Nothing passes between a worker and all servers.
    Isolate { worker: usize },
    /// Some of a thousand requests fail.
    Faulty { share: u32 },
    /// Requests and replies take up to this much longer.
    Slow { most: Nanos },
    /// A server ends all subscriptions.
    Unsubscribe { server: usize },
    /// A server stands still, and executes requests at the end.
    Stall { server: usize },
    /// A server refuses connections, and loses nothing.
    Crash { server: usize },
    /// Another server takes over with all data, and a clock that is this much ahead.
    FailOver { server: usize, ahead: i64 },
    /// Another server takes over without the last changes.
    Lose { server: usize, lag: Nanos },
    /// The clock of a server is set.
    Step { server: usize, ahead: i64 },
    /// A server has no memory for more timers.
    Full { server: usize },
    /// A caller pauses the store, and resumes it at the end. Its requests to resume the store take
    /// this much longer each, so a worker may notice the resume long before its partition does. The
    /// workers are prompt afterwards.
    Pause { slow: Nanos },
}

impl Fault {
    /// Draws a fault.
    pub(crate) fn drawn(random: &mut fastrand::Rng, setting: Setting) -> Self {
        let (workers, servers) = (setting.workers, setting.servers);
        let worker = random.usize(..workers);
        let server = random.usize(..servers);
        let begin = random.u64(10..setting.length / SECOND - 220) * SECOND;
        let begin = begin + random.u64(..1000) * MILLISECOND;
        let mut length = match random.u32(..3) {
            0 => random.u64(10..2000),
            1 => random.u64(2000..15_000),
            _ => random.u64(15_000..60_000),
        };
        let ahead = random.i64(-MOST_AHEAD..=MOST_AHEAD);
        let kind = match random.u32(..16) {
            0 => Kind::Kill { worker },
            1 => Kind::Leave { worker },
            2 => Kind::Suspend { worker },
            3 => {
                // Long enough for another worker to take over.
                length = length.max(random.u64(..90_000));
                Kind::Cut { worker, server }
            }
            4 => Kind::Mute { worker, server },
            5 => Kind::Isolate { worker },
            6 => Kind::Faulty { share: random.u32(1..200) },
            7 => Kind::Slow { most: random.u64(1..1500) * MILLISECOND },
            8 => Kind::Unsubscribe { server },
            9 => Kind::Stall { server },
            10 => Kind::Crash { server },
            11 => Kind::FailOver { server, ahead },
            12 => Kind::Lose { server, lag: random.u64(1..2000) * MILLISECOND },
            13 => Kind::Step { server, ahead },
            14 => Kind::Full { server },
            _ => Kind::Pause { slow: random.u64(..300) * MILLISECOND },
        };
        Self { begin, length: length * MILLISECOND, kind }
    }

    pub(crate) fn is_pause(&self) -> bool {
        matches!(self.kind, Kind::Pause { .. })
    }

    pub(crate) fn end(&self) -> Nanos {
        match self.kind {
            Kind::Unsubscribe { .. } | Kind::Step { .. } => self.begin,
            _ => self.begin + self.length,
        }
    }

    /// Returns how long after it workers can take over partitions again, or `None` if they can
    /// meanwhile.
    pub(crate) fn stops_heartbeats(&self) -> Option<Nanos> {
        let stops = match self.kind {
            // A heartbeat that was held back may count a worker that has left.
            Kind::Faulty { .. } => return Some(HELD_BACK),
            Kind::Slow { .. } | Kind::Isolate { .. } => true,
            Kind::Cut { server, .. }
            | Kind::Mute { server, .. }
            | Kind::Stall { server }
            | Kind::Crash { server }
            | Kind::Lose { server, .. }
            | Kind::FailOver { server, .. } => server == 0,
            _ => false,
        };
        stops.then_some(HEARTBEATS)
    }

    /// Returns `true` if it delays timers or notices, or did a while ago.
    pub(crate) fn is_recent(&self, now: Nanos) -> bool {
        let is_any =
            !matches!(self.kind, Kind::Leave { .. } | Kind::Full { .. } | Kind::Pause { .. });
        is_any && (self.begin..self.end() + RECOVERY).contains(&now)
    }

    /// Returns how long after it everything is prompt again, if no other fault is near.
    fn recovery(&self) -> Nanos {
        match self.kind {
            // Five seconds until the worker counts as dead, and the next heartbeat of another one.
            Kind::Kill { .. } => 6500 * MILLISECOND,
            Kind::Unsubscribe { .. } => SECOND,
            Kind::Suspend { .. } => 2 * SECOND,
            // Windows go by the clock of the first server, which they read once a second.
            Kind::Step { server: 0, .. } => 3 * SECOND,
            // Keys that another server has delayed go by its clock as it was, until they fire.
            Kind::Step { .. } | Kind::FailOver { .. } => 12 * SECOND,
            Kind::Faulty { .. } => 6 * SECOND,
            // A lease that was refused is requested again at the first check after a second.
            Kind::Pause { slow } => RESUMED + RESUMES * slow,
            Kind::Slow { .. } => 3 * SECOND,
            // No window has the timers whose acknowledgement was lost.
            Kind::Lose { .. } => STRAGGLING,
            // Requests are sent again after two seconds without a reply.
            _ => 4 * SECOND,
        }
    }

    /// Returns the timers that are delayed if no other fault is near, or `None` if there are none.
    fn disturbs(&self) -> Option<Disturbance> {
        let (begin, end, recovery) = (self.begin, self.end(), self.recovery());
        let (server, most, moves) = (None, None, 0);
        let all = Disturbance { begin, end, recovery, server, most, moves };
        Some(match self.kind {
            Kind::Leave { .. } | Kind::Full { .. } => return None,
            // The start of a worker delays nothing.
            Kind::Kill { .. } => Disturbance { end: begin, ..all },
            Kind::Cut { server: server @ 1.., .. } => {
                Disturbance { server: Some(server), most: Some(STRAGGLING), ..all }
            }
            Kind::Stall { server: server @ 1.. } | Kind::Crash { server: server @ 1.. } => {
                Disturbance { server: Some(server), ..all }
            }
            // The timers that the clock passes are due at once.
            Kind::FailOver { .. } | Kind::Step { .. } => {
                Disturbance { begin: begin.saturating_sub(APART), moves: APART, ..all }
            }
            Kind::Lose { lag, .. } => Disturbance { begin: begin.saturating_sub(lag), ..all },
            _ => all,
        })
    }
}

/// Returns the disturbance by a leave while requests are held back. A heartbeat that arrives after
/// the leave counts the worker as alive until it is dead again.
fn revived(leave: &Fault, faults: &[Fault]) -> Option<Disturbance> {
    let holds_back = |fault: &&Fault| {
        let is_faulty = matches!(fault.kind, Kind::Faulty { .. });
        is_faulty && (fault.begin..fault.end() + HELD_BACK).contains(&leave.begin)
    };
    let end = faults.iter().filter(holds_back).map(Fault::end).max()?;
    let (server, most, moves) = (None, None, 0);
    Some(Disturbance { begin: leave.begin, end, recovery: HELD_BACK, server, most, moves })
}

/// A period in which timers are delayed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    begin: Nanos,
    end: Nanos,
    /// How long after the end everything is prompt again.
    recovery: Nanos,
    /// The server whose timers alone are delayed.
    server: Option<usize>,
    /// The maximum lateness of timers nevertheless.
    most: Option<Nanos>,
    /// How far it may move a clock, and so the due times of timers.
    moves: Nanos,
}

impl Disturbance {
    /// Returns the disturbances by some faults. `started` is the time by which all workers have
    /// started. Workers have permits for stragglers if `spare` is set.
    pub(crate) fn of(faults: &[Fault], started: Nanos, spare: bool) -> Vec<Self> {
        let (server, most) = (None, None);
        let start = Self { begin: 0, end: started, recovery: RECOVERY, server, most, moves: 0 };
        let is_near = |one: &Fault, other: &Fault| {
            let far = one.end() + ISOLATED < other.begin || other.end() + ISOLATED < one.begin;
            !far
        };
        let disturbance = |place: usize, fault: &Fault| {
            let others = faults.iter().enumerate().filter(|(other, _)| *other != place);
            let is_alone = others.into_iter().all(|(_, other)| !is_near(fault, other));
            let alone = match fault.kind {
                Kind::Leave { .. } => revived(fault, faults)?,
                _ => fault.disturbs()?,
            };
            let recovery = RECOVERY.max(alone.recovery);
            let several = Self { recovery, server, most, ..alone };
            let most = alone.most.filter(|_| spare);
            Some(if is_alone { Self { most, ..alone } } else { several })
        };
        let all = faults.iter().enumerate();
        let all = all.filter_map(|(place, fault)| disturbance(place, fault));
        std::iter::once(start).chain(all).collect()
    }

    /// Returns the latest time by which a timer of a server must be leased that is due at `due`,
    /// could be leased by `possible` otherwise, and is not late by `deadline`.
    pub(crate) fn deadline(
        &self,
        server: usize,
        (due, possible): (Nanos, Nanos),
        deadline: Nanos,
    ) -> Nanos {
        if self.begin > deadline || self.end + self.recovery <= due {
            return deadline;
        }
        if self.server.is_some_and(|disturbed| disturbed != server) {
            return deadline.max(possible + ELSEWHERE);
        }
        let most = self.most.map_or(Nanos::MAX, |most| possible + most);
        (self.end + self.recovery).min(most)
    }

    /// Returns how far it may have moved the due time of a timer that was due at `due`.
    pub(crate) fn moves(&self, due: Nanos, now: Nanos) -> Nanos {
        if self.begin <= now && due <= self.end + self.recovery { self.moves } else { 0 }
    }

    /// Returns `true` if it is in effect, or was a while ago.
    pub(crate) fn includes(&self, time: Nanos) -> bool {
        (self.begin..=self.end + self.recovery).contains(&time)
    }
}
