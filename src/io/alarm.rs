//! [`Alarm`]: the timer that ends a wait of a stream.
//!
//! A future that waits in a stream may be dropped, and the stream is not told. Its timer then wakes
//! a task that does not poll the stream. So the timer holds a [`Signal`] in place of the task's
//! waker, which notes when it woke the task: a poll that comes long after that is not the one that
//! the task was woken for, and begins a wait of its own.

#![forbid(unsafe_code)]

use super::handle::remember;
use crate::future::grace::Grace;
use crate::future::{Sleep, Timer, Wake as Woken};
use crate::panics::ignore_poison;
use crate::sync::{Mutex, MutexGuard};
use crate::{Moment, Refusal, Wheel};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

/// A timer that was armed once.
#[derive(Debug)]
pub(super) struct Alarm {
    sleep: Sleep,
    /// Delays the end of a wait until the runtime has polled its sockets.
    grace: Grace,
    /// For when, unless it has fired.
    armed: Option<Moment>,
    signal: Arc<Signal>,
    /// The signal's.
    waker: Waker,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its time has passed, and the task was woken for that just now.
    InTime,
    /// Its time has passed, and the task that was woken for that did not poll.
    Unnoticed,
}

impl Alarm {
    pub(super) fn new(timer: &Timer, at: Moment) -> Self {
        let sleep = timer.sleep_until(timer.wheel().instant(at));
        let signal = Arc::new(Signal { timer: timer.share(), state: Mutex::default() });
        let waker = Waker::from(Arc::clone(&signal));
        Self { sleep, grace: Grace::default(), armed: Some(at), signal, waker }
    }

    /// Ready when `until` has come and the runtime has polled its sockets since, or the timer
    /// refuses to wait for it; unnoticed, and at once, if the task was woken for it longer ago than
    /// `patience`.
    pub(super) fn poll(
        &mut self,
        until: Moment,
        patience: Duration,
        wheel: &Wheel<Woken>,
        task: &Waker,
    ) -> Poll<Result<End, Refusal>> {
        let end = match self.signal.attach(task) {
            Some(woken) if self.signal.since(woken) > patience => End::Unnoticed,
            _ => End::InTime,
        };
        let mut context = Context::from_waker(&self.waker);
        loop {
            let armed = match self.armed {
                Some(armed) if armed <= until => armed,
                _ => {
                    self.sleep.reset(wheel.instant(until));
                    until
                }
            };
            self.armed = Some(armed);
            // The end of a sleep for a moment before `until` is not reported, and not delayed.
            let reported = armed == until && end == End::InTime;
            let rung = ready!(match reported {
                true => self.grace.poll(&mut self.sleep, &mut context),
                false => Pin::new(&mut self.sleep).poll(&mut context),
            });
            self.armed = None;
            if armed == until || rung.is_err() {
                return Poll::Ready(rung.map(|()| end));
            }
        }
    }
}

/// Wakes a task, and notes when.
#[derive(Debug)]
struct Signal {
    timer: Timer,
    state: Mutex<Signalled>,
}

#[derive(Debug, Default)]
struct Signalled {
    /// The task that waits, until it is woken.
    task: Option<Waker>,
    /// When a task was woken, until one polls.
    at: Option<Instant>,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, Signalled> {
        ignore_poison(self.state.lock())
    }

    /// Attaches the task that is to be woken, and returns when one was woken since the last call.
    fn attach(&self, task: &Waker) -> Option<Instant> {
        let mut state = self.lock();
        let replaced = remember(&mut state.task, task);
        let woken = state.at.take();
        drop(state);
        drop(replaced);
        woken
    }

    fn since(&self, at: Instant) -> Duration {
        self.timer.now().saturating_duration_since(at)
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let now = self.timer.now();
        let mut state = self.lock();
        state.at = Some(now);
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}
