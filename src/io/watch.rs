//! [`Watch`]: what a stream waits for, until when, and the timers that end it.
//!
//! Each direction has a wait of its own. It begins with a first pending poll, and ends with one
//! that is ready, or gives up; but a flush that is ready without having waited says nothing of a
//! write that waits. Within it count the direction's own limit and that of silence, which begins
//! anew when bytes go the other way; bytes that are written begin a read's own limit anew too.
//!
//! A timer is armed for no later than the earliest limit of its direction: `armed <= until` for
//! each of them. A limit that moves later leaves it where it is; one that moves earlier resets it.
//! So when it fires, either a limit has passed, or it is armed anew.
//!
//! A stream with [handles](StreamHandle) keeps a copy of the settings that it shares with them, and
//! compares both at the beginning of each operation and wherever one has to wait.

#![forbid(unsafe_code)]

use super::error::{Limit, StreamError};
use super::handle::{Shared, StreamHandle};
use super::limits::{Direction, Settings};
use crate::future::{Sleep, Timer, Wake};
use crate::{Moment, Refusal, Wheel};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Watch {
    timer: Timer,
    /// As this stream last saw them.
    settings: Settings,
    /// Where the settings lie, if there are handles.
    shared: OnceLock<StreamHandle>,
    /// Whether bytes that are written begin a read's wait anew.
    writes_restart_reads: bool,
    reads: Wait,
    writes: Wait,
}

/// What one direction waits for.
#[derive(Debug, Default)]
struct Wait {
    /// When its own limit passes, if it counts.
    own: Option<Moment>,
    /// When that of silence passes, if it counts.
    idle: Option<Moment>,
    /// What its polls were pending for since the wait began.
    pending: Option<Operation>,
    alarm: Option<Alarm>,
}

/// What is done to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// What moves bytes when it is ready: a read or a write.
    Move,
    /// A flush or a shutdown.
    Finish,
}

/// A timer that was armed once.
#[derive(Debug)]
struct Alarm {
    sleep: Sleep,
    /// For when, unless it has fired.
    armed: Option<Moment>,
}

impl Watch {
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

    fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.get().map(StreamHandle::shared)
    }

    /// The settings, by the last that set them.
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
        let deadline = deadline.map(|at| self.timer.wheel().moment(at));
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

    /// Takes over settings: what was set begins to count anew with the next pending poll, and what
    /// was paused from the end of the pause.
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
                end.map(|end| wheel.moment(end))
            };
            reads.own = later(reads.own, resumed(new.read.limit));
            let idle = resumed(new.idle.limit);
            (reads.idle, writes.idle) = (later(reads.idle, idle), later(writes.idle, idle));
        }
    }

    /// Ends the direction's wait if nothing may begin any more; whether that is so.
    #[inline]
    pub(super) fn is_over(&mut self, direction: Direction) -> bool {
        if let Some(settings) = self.shared().map(|shared| shared.settings()) {
            self.adopt(settings);
        }
        let over = self.settings.deadline.is_some_and(|at| self.timer.wheel().has_come(at));
        if over {
            self.wait_of(direction).end();
        }
        over
    }

    fn wait_of(&mut self, direction: Direction) -> &mut Wait {
        match direction {
            Direction::Reads => &mut self.reads,
            Direction::Writes => &mut self.writes,
        }
    }

    /// An operation is ready.
    #[inline]
    pub(super) fn is_ready(&mut self, direction: Direction, operation: Operation) {
        let Self { timer, settings, writes_restart_reads, reads, writes, .. } = self;
        let (wait, other) = match direction {
            Direction::Reads => (reads, writes),
            Direction::Writes => (writes, reads),
        };
        // A flush has moved bytes if it has waited.
        let moved = match operation {
            Operation::Move => true,
            Operation::Finish => wait.pending == Some(Operation::Finish),
        };
        if moved {
            wait.end();
            if other.pending.is_some() {
                let wheel = timer.wheel();
                other.idle = settings.idle.limit.map(|limit| wheel.moment_after(limit));
                if *writes_restart_reads && direction == Direction::Writes {
                    other.own = settings.read.limit.map(|limit| wheel.moment_after(limit));
                }
            }
        }
    }

    /// An operation has to wait: ready if it has waited for too long.
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
        let given_up = ready!(self.poll_alarm(direction, operation, context));
        self.wait_of(direction).end();
        Poll::Ready(given_up)
    }

    fn poll_alarm(
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
        if wait.pending != Some(Operation::Move) {
            wait.pending = Some(operation);
        }
        if settings.is_paused() {
            wait.idle = None;
            if direction == Direction::Reads {
                wait.own = None;
            }
        }
        begin(&mut wait.own, settings.own(direction).limit, wheel);
        begin(&mut wait.idle, settings.idle.limit, wheel);
        let limits =
            [(wait.own, own), (wait.idle, Limit::Idle), (settings.deadline, Limit::Deadline)];
        let limits = limits.into_iter().filter_map(|(until, limit)| Some((until?, limit)));
        let Some((until, limit)) = limits.min_by_key(|&(until, _)| until) else {
            return Poll::Pending;
        };
        let alarm = wait.alarm.get_or_insert_with(|| Alarm::new(timer, until));
        alarm.poll(until, wheel, context).map(|rung| match rung {
            Ok(()) => StreamError::Elapsed(limit),
            Err(refusal) => StreamError::Refused(refusal),
        })
    }
}

/// A stream that is gone keeps no task, whatever becomes of its handles.
impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.shared().map(|shared| shared.take_tasks()));
    }
}

/// Begins to count, unless it does.
#[inline]
fn begin(until: &mut Option<Moment>, limit: Option<Duration>, wheel: &Wheel<Wake>) {
    if until.is_none() {
        *until = limit.map(|limit| wheel.moment_after(limit));
    }
}

/// The later of two, if there was one.
fn later(until: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    until.map(|until| other.map_or(until, |other| until.max(other)))
}

impl Wait {
    fn end(&mut self) {
        (self.own, self.idle, self.pending) = (None, None, None);
    }
}

impl Alarm {
    fn new(timer: &Timer, at: Moment) -> Self {
        Self { sleep: timer.sleep_until(timer.wheel().instant(at)), armed: Some(at) }
    }

    /// Ready when `until` has come, or the timer refuses to wait for it.
    fn poll(
        &mut self,
        until: Moment,
        wheel: &Wheel<Wake>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Refusal>> {
        loop {
            let armed = match self.armed {
                Some(armed) if armed <= until => armed,
                _ => {
                    self.sleep.reset(wheel.instant(until));
                    until
                }
            };
            self.armed = Some(armed);
            let rung = ready!(Pin::new(&mut self.sleep).poll(context));
            self.armed = None;
            if armed == until || rung.is_err() {
                return Poll::Ready(rung);
            }
        }
    }
}
