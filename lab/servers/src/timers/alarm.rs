//! [`Alarm`] wakes the task that waits for the earliest deadline of a structure.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tokio::time::{Sleep, sleep_until};

/// One sleep of tokio's for all timers of a structure.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
    /// The instant when the task is woken, and the task, while it waits.
    at: Option<Instant>,
    waker: Option<Waker>,
}

impl Alarm {
    /// Completes once `next` has passed, if there is a next deadline.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, next: Option<Instant>) -> Poll<()> {
        if self.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            self.waker = Some(context.waker().clone());
        }
        let moved = self.at != next;
        self.at = next;
        let Some(next) = next else {
            return Poll::Pending;
        };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(next.into())));
        if moved {
            sleep.as_mut().reset(next.into());
        }
        sleep.as_mut().poll(context)
    }

    /// Wakes the task if a timer with this deadline is due before the instant that it waits for.
    pub(super) fn armed(&mut self, deadline: Instant) {
        if self.at.is_none_or(|at| deadline < at) {
            if let Some(waker) = self.waker.take() {
                waker.wake();
            }
        }
    }
}
