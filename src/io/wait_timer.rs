//! [`WaitTimer`]: the timer that ends a wait of a stream.
//!
//! A future that waits on a stream may be dropped without notice to the stream. Its timer then
//! wakes a task that does not poll the stream. The timer therefore holds a [`WakeRecorder`] in
//! place of the task's waker, which records when it woke the task. A poll that comes long after
//! that time is not the poll that the task was woken for, and starts a new wait.

#![forbid(unsafe_code)]

use super::handle::store_waker;
use crate::future::grace::Grace;
use crate::future::{Sleep, SleepWaker, Timer};
use crate::panics::ignore_poison;
use crate::sync::{Mutex, MutexGuard};
use crate::{Refusal, Wheel, WheelInstant};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::{Duration, Instant};

/// A timer that has been armed at least once.
#[derive(Debug)]
pub(super) struct WaitTimer {
    sleep: Sleep,
    /// Delays the end of a wait until the runtime has polled its sockets.
    grace: Grace,
    /// The timer's deadline, unless it has fired.
    armed: Option<WheelInstant>,
    recorder: Arc<WakeRecorder>,
    /// The waker of the recorder.
    waker: Waker,
}

/// The way a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The limit has passed, and the task has polled soon after it was woken.
    InTime,
    /// The limit has passed, and the task that was woken for it did not poll in time.
    Unnoticed,
}

impl WaitTimer {
    pub(super) fn new(timer: &Timer, at: WheelInstant) -> Self {
        let sleep = timer.sleep_until(timer.wheel().instant(at));
        let recorder = Arc::new(WakeRecorder { timer: timer.share(), state: Mutex::default() });
        let waker = Waker::from(Arc::clone(&recorder));
        Self { sleep, grace: Grace::default(), armed: Some(at), recorder, waker }
    }

    /// Returns `true` while an end is delayed until the runtime has polled its sockets.
    pub(super) fn is_delaying(&self) -> bool {
        self.grace.is_delaying()
    }

    /// Returns `Ready` when the runtime has polled its sockets since `deadline`, which has passed.
    /// Does not wait for the timer to be swept, because the task is awake without it.
    pub(super) fn poll_passed(
        &mut self,
        deadline: WheelInstant,
        wheel: &Wheel<SleepWaker>,
        task: &Waker,
    ) -> Poll<()> {
        self.recorder.replace_task(task);
        if self.armed.is_none_or(|armed| armed > deadline) {
            self.sleep.reset(wheel.instant(deadline));
            self.armed = Some(deadline);
        }
        let mut context = Context::from_waker(&self.waker);
        let delayed = self.grace.delay(Poll::Ready(Ok(())), &self.sleep, &mut context);
        ready!(delayed.map(drop));
        self.armed = None;
        Poll::Ready(())
    }

    /// Returns `Ready` when `until` has passed and the runtime has polled its sockets since, or
    /// when the timer refuses to wait.
    ///
    /// If the task was woken longer ago than `patience`, the wait has ended unnoticed and the
    /// result is ready at once.
    pub(super) fn poll(
        &mut self,
        until: WheelInstant,
        patience: Duration,
        wheel: &Wheel<SleepWaker>,
        task: &Waker,
    ) -> Poll<Result<End, Refusal>> {
        let end = match self.recorder.replace_task(task) {
            Some(woken) if self.recorder.since(woken) > patience => End::Unnoticed,
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
            // A sleep that ends before `until` is neither reported nor delayed.
            let reported = armed == until && end == End::InTime;
            let slept = ready!(match reported {
                true => self.grace.poll(&mut self.sleep, &mut context),
                false => Pin::new(&mut self.sleep).poll(&mut context),
            });
            self.armed = None;
            if armed == until || slept.is_err() {
                return Poll::Ready(slept.map(|()| end));
            }
        }
    }
}

/// A waker that records when it woke its task.
#[derive(Debug)]
struct WakeRecorder {
    timer: Timer,
    state: Mutex<WakeRecord>,
}

#[derive(Debug, Default)]
struct WakeRecord {
    /// The waiting task, until it is woken.
    task: Option<Waker>,
    /// The time when a task was woken, until a task polls.
    at: Option<Instant>,
}

impl WakeRecorder {
    fn lock(&self) -> MutexGuard<'_, WakeRecord> {
        ignore_poison(self.state.lock())
    }

    /// Sets the task to wake, and clears the record. Returns when the previous task was woken, if
    /// it was.
    fn replace_task(&self, task: &Waker) -> Option<Instant> {
        let mut state = self.lock();
        let replaced = store_waker(&mut state.task, task);
        let woken = state.at.take();
        drop(state);
        drop(replaced);
        woken
    }

    fn since(&self, at: Instant) -> Duration {
        self.timer.now().saturating_duration_since(at)
    }
}

impl Wake for WakeRecorder {
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
