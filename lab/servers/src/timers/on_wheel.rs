//! [`OnWheel`]: timers on a wheel that the server sweeps.

use super::alarm::Alarm;
use super::structure::{Batch, DUE_AT_ONCE, Name, Records, Timers};
use atomic_waker::AtomicWaker;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tourbillon::{BuildError, Builder, Pinned, Sweeper, TimerId, Wheel};

/// A wheel and its sweeper.
#[derive(Debug)]
pub(super) struct OnWheel<V> {
    wheel: Wheel<V>,
    sweeper: Sweeper<V>,
    /// The task that waits for the next deadline.
    task: Arc<AtomicWaker>,
    alarm: Alarm,
}

impl<V: Name> OnWheel<V> {
    /// Builds a wheel of one shard, since one thread uses it at a time.
    pub(super) fn new(builder: Builder) -> Result<Self, BuildError> {
        let task = Arc::new(AtomicWaker::new());
        let woken = Arc::clone(&task);
        let (wheel, sweeper) = builder.shards(1).waker(move || woken.wake()).build()?;
        Ok(Self { wheel, sweeper, task, alarm: Alarm::default() })
    }
}

impl<V: Name> Timers<V> for OnWheel<V> {
    type Id = TimerId;
    type Batch<'a> = Pinned<'a, V>;

    fn batch(&mut self) -> Pinned<'_, V> {
        self.wheel.pin()
    }

    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        _: &mut impl Records<V, TimerId>,
        due: &mut Vec<V>,
    ) -> Poll<()> {
        let _ = self.sweeper.sweep_some(DUE_AT_ONCE, |timer| due.push(timer.value));
        if !due.is_empty() {
            return Poll::Ready(());
        }
        // Registered before the sweeper computes the deadline, so that an earlier timer that is
        // armed afterwards wakes the task.
        self.task.register(context.waker());
        self.alarm.poll(context, self.sweeper.next_deadline())
    }

    fn armed(&self) -> usize {
        self.wheel.len()
    }
}

impl<V: Name> Batch<V> for Pinned<'_, V> {
    type Id = TimerId;

    fn now(&self) -> Instant {
        Pinned::now(self)
    }

    fn prefetch(&self, id: &TimerId) {
        Pinned::prefetch(self, *id);
    }

    fn arm(&mut self, value: V, delay: Duration) -> TimerId {
        Pinned::insert(self, value, delay).expect("the options limit delays to an hour")
    }

    fn reset(&mut self, id: &mut TimerId, _: &V, delay: Duration) -> bool {
        Pinned::reset(self, *id, delay).expect("the options limit delays to an hour")
    }

    fn cancel(&mut self, id: TimerId) -> bool {
        Pinned::cancel(self, id).is_some()
    }
}
