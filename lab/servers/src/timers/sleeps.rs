//! [`Sleeps`]: a sleep of tokio's for each timer, with a waker that records whose timer it is.

use super::structure::{Batch, Name, Records, Timers};
use atomic_waker::AtomicWaker;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::time::{Sleep, sleep_until};

/// The timers that have fired. Those that are armed are with their owners.
#[derive(Debug)]
pub(super) struct Sleeps<V> {
    fired: Arc<Fired<V>>,
    armed: usize,
}

/// The names of sleeps that may have elapsed, and the task that handles them.
#[derive(Debug)]
struct Fired<V> {
    names: Mutex<Vec<V>>,
    task: AtomicWaker,
}

/// The waker of one sleep.
struct Woken<V> {
    name: V,
    fired: Arc<Fired<V>>,
}

/// An armed sleep.
#[derive(Debug)]
pub(super) struct Armed {
    sleep: Pin<Box<Sleep>>,
    waker: Waker,
    /// Set when the timer has been handed over.
    fired: bool,
}

/// A batch of operations on [`Sleeps`].
#[derive(Debug)]
pub(super) struct SleepsBatch<'a, V> {
    sleeps: &'a mut Sleeps<V>,
    now: tokio::time::Instant,
}

impl<V: Name> Sleeps<V> {
    /// Creates timers without arming any.
    pub(super) fn new() -> Self {
        let fired = Fired { names: Mutex::default(), task: AtomicWaker::new() };
        Self { fired: Arc::new(fired), armed: 0 }
    }
}

impl<V> Fired<V> {
    fn names(&self) -> MutexGuard<'_, Vec<V>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Name> Wake for Woken<V> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.fired.names().push(self.name.clone());
        self.fired.task.wake();
    }
}

impl Armed {
    /// Polls the sleep, which registers its waker, and returns `true` once it has elapsed.
    fn fire(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        let was = self.fired;
        self.fired |= self.sleep.as_mut().poll(&mut context).is_ready();
        self.fired && !was
    }
}

impl<V: Name> Timers<V> for Sleeps<V> {
    type Id = Armed;
    type Batch<'a> = SleepsBatch<'a, V>;

    fn batch(&mut self) -> SleepsBatch<'_, V> {
        SleepsBatch { sleeps: self, now: tokio::time::Instant::now() }
    }

    fn poll_due(
        &mut self,
        context: &mut Context<'_>,
        records: &mut impl Records<V, Armed>,
        due: &mut Vec<V>,
    ) -> Poll<()> {
        self.fired.task.register(context.waker());
        let names = std::mem::take(&mut *self.fired.names());
        for name in names {
            // It may have been reset or cancelled since.
            if records.timer(&name).is_some_and(Armed::fire) {
                due.push(name);
                self.armed -= 1;
            }
        }
        if due.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    fn armed(&self) -> usize {
        self.armed
    }
}

impl<V: Name> Batch<V> for SleepsBatch<'_, V> {
    type Id = Armed;

    fn now(&self) -> Instant {
        self.now.into_std()
    }

    fn arm(&mut self, value: V, delay: Duration) -> Armed {
        let fired = Arc::clone(&self.sleeps.fired);
        let waker = Waker::from(Arc::new(Woken { name: value, fired }));
        let mut sleep = Box::pin(sleep_until(self.now + delay));
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            waker.wake_by_ref();
        }
        self.sleeps.armed += 1;
        Armed { sleep, waker, fired: false }
    }

    fn reset(&mut self, armed: &mut Armed, _: &V, delay: Duration) -> bool {
        // The waker stays registered, so the sleep need not be polled.
        armed.sleep.as_mut().reset(self.now + delay);
        !armed.fired
    }

    fn cancel(&mut self, armed: Armed) -> bool {
        self.sleeps.armed -= usize::from(!armed.fired);
        !armed.fired
    }
}
