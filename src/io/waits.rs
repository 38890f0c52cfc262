//! [`Waits`]: the waits of a stream, their limits, and the timers that end them.
//!
//! Each direction has a wait of its own. The wait begins with the first pending poll and ends with
//! a poll that is ready or fails. A flush that is ready without having waited does not end the wait
//! of a write. A wait whose limit has passed [unnoticed](End::Unnoticed) starts again, once. During
//! a wait both the direction's own limit and the limit for silence count. The latter restarts when
//! bytes move in the other direction. Bytes that are written also restart the own limit of a read.
//!
//! A timer is armed for no later than the earliest limit of its direction, that is `armed <= until`
//! for each of them. A limit that moves later leaves the timer alone. A limit that moves earlier
//! resets it. When the timer fires, either a limit has passed or the timer is armed again.
//!
//! A stream with [handles](StreamHandle) keeps a copy of the shared settings. It compares the copy
//! with them at the start of each operation and wherever an operation has to wait.

#![forbid(unsafe_code)]

use super::error::{Limit, StreamError};
use super::handle::{StreamHandle, StreamShared};
use super::settings::{Direction, Settings};
use super::wait_timer::{End, WaitTimer};
use crate::future::{SleepWaker, Timer};
use crate::{Wheel, WheelInstant};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The maximum delay of a poll after the task was woken for a limit. A later poll begins another
/// wait.
const MAX_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Waits {
    timer: Timer,
    /// The settings as this stream last saw them.
    settings: Settings,
    /// The shared settings, if there are handles.
    shared: OnceLock<StreamHandle>,
    /// `true` if a write of bytes restarts the wait of a read.
    writes_restart_reads: bool,
    reads: Wait,
    writes: Wait,
}

/// The wait of one direction.
#[derive(Debug, Default)]
struct Wait {
    /// The time when the direction's own limit passes, if it counts.
    own: Option<WheelInstant>,
    /// The time when the limit for silence passes, if it counts.
    idle: Option<WheelInstant>,
    /// `true` if polls of a read or write were pending since the wait began.
    moves: bool,
    /// `true` if polls of a flush or shutdown were pending since the wait began.
    finishes: bool,
    /// `true` if the limits have restarted since the last bytes, because they passed unnoticed.
    renewed: bool,
    timer: Option<WaitTimer>,
}

/// The kind of an operation on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// A read or a write, which has moved bytes when it is ready.
    Move,
    /// A flush or a shutdown.
    Finish,
}

impl Waits {
    pub(super) fn new(timer: Timer) -> Self {
        Self {
            timer,
            settings: Settings::default(),
            shared: OnceLock::new(),
            writes_restart_reads: true,
            reads: Wait::default(),
            writes: Wait::default(),
        }
    }

    pub(super) fn handle(&self) -> StreamHandle {
        let new = || StreamHandle::new(self.timer.share(), self.settings);
        self.shared.get_or_init(new).clone()
    }

    fn shared(&self) -> Option<&Arc<StreamShared>> {
        self.shared.get().map(StreamHandle::shared)
    }

    /// Returns the settings as last set, by the stream or a handle.
    pub(super) fn settings(&self) -> Settings {
        self.shared().map_or(self.settings, |shared| shared.settings())
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings;
        match self.shared() {
            Some(shared) => settings = shared.set(change),
            None => change(&mut settings),
        }
        self.adopt(settings);
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        let deadline = deadline.map(|at| self.timer.wheel().wheel_instant(at));
        self.set(|settings| settings.deadline = deadline);
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.settings().deadline.map(|at| self.timer.wheel().instant(at))
    }

    pub(super) fn writes_restart_reads(&self) -> bool {
        self.writes_restart_reads
    }

    pub(super) fn set_writes_restart_reads(&mut self, restart: bool) {
        self.writes_restart_reads = restart;
    }

    /// Stores new settings, and adjusts the waits to the changes. A limit that was set restarts
    /// with the next pending poll, and a limit that was paused restarts at the end of the pause.
    fn adopt(&mut self, new: Settings) {
        let old = std::mem::replace(&mut self.settings, new);
        let Self { timer, reads, writes, .. } = self;
        if old.read != new.read {
            reads.own = None;
        }
        if old.write != new.write {
            writes.own = None;
        }
        if old.idle != new.idle {
            (reads.idle, writes.idle) = (None, None);
        }
        if old.resumed != new.resumed {
            let wheel = timer.wheel();
            let resumed = |limit: Option<Duration>| {
                let end = new.resumed.zip(limit).and_then(|(from, limit)| from.checked_add(limit));
                end.map(|end| wheel.wheel_instant(end))
            };
            reads.own = postponed(reads.own, resumed(new.read.limit));
            let idle = resumed(new.idle.limit);
            (reads.idle, writes.idle) = (postponed(reads.idle, idle), postponed(writes.idle, idle));
        }
    }

    /// Ends the direction's wait and returns the limit that has passed if no operation may begin
    /// any more.
    #[inline]
    pub(super) fn poll_deadline(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
    ) -> Poll<Limit> {
        if let Some(settings) = self.shared().map(|shared| shared.settings()) {
            self.adopt(settings);
        }
        match self.settings.cutoff() {
            Some((at, limit)) if self.timer.wheel().has_passed(at) => {
                self.poll_passed_deadline(at, direction, context).map(|()| limit)
            }
            _ => Poll::Pending,
        }
    }

    /// Returns `Ready` if a deadline that has passed ends the direction.
    ///
    /// This is at once, or, if the limit has a [grace](crate::future::grace), after the runtime has
    /// polled its sockets. On a closed wheel, such as a forked child has, no timer could end
    /// that delay.
    #[cold]
    fn poll_passed_deadline(
        &mut self,
        deadline: WheelInstant,
        direction: Direction,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let timer = self.timer.share();
        let wait = self.wait_of(direction);
        if !timer.wheel().is_closed() {
            let wait_timer = wait.timer.get_or_insert_with(|| WaitTimer::new(&timer, deadline));
            let was_delaying = wait_timer.is_delaying();
            let polled = wait_timer.poll_passed(deadline, timer.wheel(), context.waker());
            if polled.is_pending() || was_delaying {
                return Poll::Pending;
            }
        }
        wait.end();
        Poll::Ready(())
    }

    fn wait_of(&mut self, direction: Direction) -> &mut Wait {
        match direction {
            Direction::Reads => &mut self.reads,
            Direction::Writes => &mut self.writes,
        }
    }

    /// Records that an operation is ready.
    #[inline]
    pub(super) fn finish_operation(&mut self, direction: Direction, operation: Operation) {
        let Self { timer, settings, writes_restart_reads, reads, writes, .. } = self;
        let (wait, other) = match direction {
            Direction::Reads => (reads, writes),
            Direction::Writes => (writes, reads),
        };
        // A flush has moved bytes only if it has waited.
        let moved = match operation {
            Operation::Move => true,
            Operation::Finish => wait.finishes,
        };
        if moved {
            wait.end();
            if other.is_waiting() {
                let wheel = timer.wheel();
                other.idle = settings.idle.limit.map(|limit| wheel.wheel_instant_after(limit));
                if *writes_restart_reads && direction == Direction::Writes {
                    other.own = settings.read.limit.map(|limit| wheel.wheel_instant_after(limit));
                }
            }
        }
    }

    /// Records that an operation has to wait. Returns `Ready` if it has waited for too long.
    pub(super) fn poll_limits(
        &mut self,
        direction: Direction,
        operation: Operation,
        context: &mut Context<'_>,
    ) -> Poll<StreamError> {
        let shared = self.shared();
        if let Some(settings) = shared.map(|at| at.settings_for(direction, context.waker())) {
            self.adopt(settings);
        }
        let given_up = ready!(self.poll_wait(direction, operation, context));
        self.wait_of(direction).end();
        Poll::Ready(given_up)
    }

    fn poll_wait(
        &mut self,
        direction: Direction,
        operation: Operation,
        context: &mut Context<'_>,
    ) -> Poll<StreamError> {
        let Self { timer, settings, reads, writes, .. } = self;
        let (wait, own) = match direction {
            Direction::Reads => (reads, Limit::Read),
            Direction::Writes => (writes, Limit::Write),
        };
        let wheel = timer.wheel();
        match operation {
            Operation::Move => wait.moves = true,
            Operation::Finish => wait.finishes = true,
        }
        if settings.is_paused() {
            wait.idle = None;
            if direction == Direction::Reads {
                wait.own = None;
            }
        }
        let (own_time, idle_time) = (settings.own(direction).limit, settings.idle.limit);
        let (cutoff, cutoff_limit) = settings.cutoff().unzip();
        loop {
            start_unless_started(&mut wait.own, own_time, wheel);
            start_unless_started(&mut wait.idle, idle_time, wheel);
            let limits = [
                (wait.own, own_time, own),
                (wait.idle, idle_time, Limit::Idle),
                (cutoff, None, cutoff_limit.unwrap_or(Limit::Deadline)),
            ];
            let limits =
                limits.into_iter().filter_map(|(until, of, limit)| Some((until?, of, limit)));
            let Some((until, time, limit)) = limits.min_by_key(|&(until, ..)| until) else {
                return Poll::Pending;
            };
            let patience = match time {
                Some(time) if !wait.renewed => (time / 4).min(MAX_PATIENCE),
                _ => Duration::MAX,
            };
            let wait_timer = wait.timer.get_or_insert_with(|| WaitTimer::new(timer, until));
            match ready!(wait_timer.poll(until, patience, wheel, context.waker())) {
                Ok(End::InTime) => return Poll::Ready(StreamError::Elapsed(limit)),
                Ok(End::Unnoticed) => wait.renew(),
                Err(refusal) => return Poll::Ready(StreamError::Refused(refusal)),
            }
        }
    }
}

/// Removes the tasks' wakers, so that handles that outlive the stream keep no task alive.
impl Drop for Waits {
    fn drop(&mut self) {
        drop(self.shared().map(|shared| shared.take_tasks()));
    }
}

/// Starts a limit, if there is one, unless it has started.
#[inline]
fn start_unless_started(
    until: &mut Option<WheelInstant>,
    limit: Option<Duration>,
    wheel: &Wheel<SleepWaker>,
) {
    if until.is_none() {
        *until = limit.map(|limit| wheel.wheel_instant_after(limit));
    }
}

/// Returns the later of two times, or `None` if the limit of the first has not started.
fn postponed(until: Option<WheelInstant>, other: Option<WheelInstant>) -> Option<WheelInstant> {
    until.map(|until| other.map_or(until, |other| until.max(other)))
}

impl Wait {
    fn is_waiting(&self) -> bool {
        self.moves || self.finishes
    }

    fn end(&mut self) {
        (self.own, self.idle) = (None, None);
        (self.moves, self.finishes, self.renewed) = (false, false, false);
    }

    /// Restarts the limits.
    fn renew(&mut self) {
        (self.own, self.idle, self.renewed) = (None, None, true);
    }
}
