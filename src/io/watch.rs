//! [`Watch`]: what a stream waits for, until when, and the timers that end it.
//!
//! Each direction has a wait of its own. It begins with a first pending poll, and ends with one
//! that is ready, or gives up; but a flush that is ready says nothing of a write that is not.
//! Within it count the direction's own limit and that of silence, which begins anew when bytes go
//! the other way. Bytes that are written begin a read's own limit anew too.
//!
//! A timer is armed for no later than the earliest limit of its direction: `armed <= until` for
//! each of them. A limit that moves later leaves it where it is; one that moves earlier resets it.
//! So when it fires, either a limit has passed, or it is armed anew.

#![forbid(unsafe_code)]

use super::error::{Limit, StreamError};
use crate::future::{Sleep, Timer, Wake};
use crate::{Moment, Refusal, Wheel};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// Which half of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Reads,
    /// Flushes and shutdowns too.
    Writes,
}

#[derive(Debug)]
pub(super) struct Watch {
    timer: Timer,
    reads: Wait,
    writes: Wait,
    deadline: Option<Moment>,
    /// Whether bytes that are written begin a read's own limit anew.
    writes_restart_reads: bool,
}

/// A limit, and when it passes if it counts.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    limit: Option<Duration>,
    until: Option<Moment>,
}

/// What one direction waits for.
#[derive(Debug, Default)]
struct Wait {
    own: Counted,
    /// Of the same limit in both directions.
    idle: Counted,
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

impl Counted {
    fn set(&mut self, limit: Option<Duration>) {
        *self = Self { limit, until: None };
    }

    /// Begins to count, unless it does.
    #[inline]
    fn begin(&mut self, wheel: &Wheel<Wake>) {
        if self.until.is_none() {
            self.begin_anew(wheel);
        }
    }

    #[inline]
    fn begin_anew(&mut self, wheel: &Wheel<Wake>) {
        self.until = self.limit.map(|limit| wheel.moment_after(limit));
    }
}

impl Watch {
    pub(super) fn new(timer: Timer) -> Self {
        let (reads, writes) = (Wait::default(), Wait::default());
        Self { timer, reads, writes, deadline: None, writes_restart_reads: true }
    }

    pub(super) fn set_limit(&mut self, direction: Direction, limit: Option<Duration>) {
        self.wait_of(direction).own.set(limit);
    }

    pub(super) fn limit(&self, direction: Direction) -> Option<Duration> {
        match direction {
            Direction::Reads => self.reads.own.limit,
            Direction::Writes => self.writes.own.limit,
        }
    }

    pub(super) fn set_idle(&mut self, limit: Option<Duration>) {
        self.reads.idle.set(limit);
        self.writes.idle.set(limit);
    }

    pub(super) fn idle(&self) -> Option<Duration> {
        self.reads.idle.limit
    }

    pub(super) fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline.map(|at| self.timer.wheel().moment(at));
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|at| self.timer.wheel().instant(at))
    }

    pub(super) fn writes_restart_reads(&self) -> bool {
        self.writes_restart_reads
    }

    pub(super) fn set_writes_restart_reads(&mut self, restart: bool) {
        self.writes_restart_reads = restart;
    }

    /// Ends the direction's wait if nothing may begin any more; whether that is so.
    #[inline]
    pub(super) fn is_over(&mut self, direction: Direction) -> bool {
        let over = self.deadline.is_some_and(|at| self.timer.wheel().has_come(at));
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
        let Self { timer, reads, writes, writes_restart_reads, .. } = self;
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
                other.idle.begin_anew(timer.wheel());
                if direction == Direction::Writes && *writes_restart_reads {
                    other.own.begin_anew(timer.wheel());
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
        let Self { timer, reads, writes, deadline, .. } = self;
        let (wait, own) = match direction {
            Direction::Reads => (reads, Limit::Read),
            Direction::Writes => (writes, Limit::Write),
        };
        let wheel = timer.wheel();
        if wait.pending != Some(Operation::Move) {
            wait.pending = Some(operation);
        }
        wait.own.begin(wheel);
        wait.idle.begin(wheel);
        let limits =
            [(wait.own.until, own), (wait.idle.until, Limit::Idle), (*deadline, Limit::Deadline)];
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

impl Wait {
    fn end(&mut self) {
        (self.own.until, self.idle.until, self.pending) = (None, None, None);
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
