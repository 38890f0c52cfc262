//! Repeated tasks: [`ScheduledTask`] is what a runtime polls of one run, [`Tasks`] what the caller keeps
//! of all, [`Overlap`] says what becomes of a run that comes while a task still works.
//!
//! A run of the scheduler's closure is short: it makes a task and gives it away. The tasks that
//! work are counted in one state under a lock, which is held while neither futures nor wakers nor
//! the user's closures run. A task leaves the count when it is dropped, so one that panics, or that
//! its runtime drops, leaves it too.
//!
//! **All is quiet** when no run is under way and no task works. Whoever waits for that is in the
//! state first, and then looks at both in this order, since a run makes a task and no task a run.
//! Whatever ends of the two afterwards finds the waiter.

#![forbid(unsafe_code)]

use super::closure::Observer;
use super::ending::Cancel;
use super::handle::Scheduled;
use super::run::Run;
use crate::panics::{DropEach, ignore_poison, quietly};
use crate::sync::{WaiterId, Waiters, WakeList};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// What becomes of a run that comes while a task of an earlier one still works.
///
/// Three of the choices have the names of Kubernetes' `concurrencyPolicy`, and `Forbid` differs
/// from it. There a run that was not allowed to begin counts as missed, and begins once the job has
/// ended, if that is within `startingDeadlineSeconds`; here it is left out, and the next one comes
/// at its own time. [`Queue`](Self::Queue) is the choice that makes up for such a run, without a
/// deadline.
///
/// # Examples
///
/// The newest request for a picture of the sky counts:
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::{Overlap, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let spawn = |task| drop(std::thread::spawn(|| pollster::block_on(task)));
/// let minutely = scheduler.every(Duration::from_secs(60));
/// let pictures = minutely.run_tasks(Overlap::Replace, spawn, || async { println!("click") })?;
/// assert_eq!(pictures.working(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It is left out, also if the task ends soon after: a task that always takes longer than the
    /// period works at every second time.
    #[default]
    Forbid,
    /// It begins when the task has ended; one run waits so at most, others are left out. Its future
    /// is made at its time. It is left out too if the task panics or its runtime drops it, and if
    /// the repetition is cancelled, or shut down before its next run, but not if that was the last
    /// one.
    Queue,
    /// It begins beside the task.
    Allow,
    /// It begins, and the task is dropped at its next poll, for which it is woken.
    Replace,
}

/// What a runtime polls of one run: the future of a job, counted while it lives.
pub struct ScheduledTask {
    set: Arc<TaskSet>,
    number: u64,
    /// None when it has ended or was replaced.
    future: Option<TaskFuture>,
}

type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a caller keeps of a repetition of tasks. Clones are of the same one; dropping them changes
/// nothing.
///
/// # Examples
///
/// ```
/// use std::future::pending;
/// use std::time::Duration;
/// use tourbillon::scheduler::{Ending, Overlap, Scheduler};
///
/// let scheduler = Scheduler::spawn(tourbillon::Builder::new().driver())?;
/// let spawn = |task| drop(std::thread::spawn(|| pollster::block_on(task)));
/// let every = scheduler.every(Duration::from_millis(1));
/// let tasks = every.run_tasks(Overlap::Forbid, spawn, pending::<()>)?;
/// while tasks.working() == 0 {
///     std::thread::yield_now();
/// }
/// let _ = tasks.abort();
/// pollster::block_on(tasks.wait());
/// assert_eq!(tasks.scheduled().ending(), Some(Ending::Cancelled));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tasks {
    scheduled: Scheduled,
    set: Arc<TaskSet>,
}

/// The tasks of a repetition that work.
#[derive(Default)]
pub(super) struct TaskSet {
    state: Mutex<TaskSetState>,
}

#[derive(Default)]
struct TaskSetState {
    /// How many tasks there have been.
    begun: u64,
    /// Those that work, with what wakes them once they have been polled.
    working: BTreeMap<u64, Option<Waker>>,
    /// Tasks up to this number are to be dropped.
    replaced: u64,
    /// What the task that works goes on with when it has ended.
    queued: Option<TaskFuture>,
    /// Those who wait until all is quiet.
    waiting: Waiters,
}

/// The closure's end of the running tasks.
struct TaskStarter {
    set: Arc<TaskSet>,
    overlap: Overlap,
}

/// A task that waits until all is quiet.
struct UntilIdle<'t> {
    tasks: &'t Tasks,
    waiter: WaiterId,
}

impl Tasks {
    /// A repetition of tasks, by what schedules the closure that begins them.
    pub(super) fn start<E>(
        schedule: impl FnOnce(&Arc<TaskSet>) -> Result<Scheduled, E>,
    ) -> Result<Self, E> {
        let set = Arc::default();
        let scheduled = schedule(&set)?;
        Ok(Self { scheduled, set })
    }

    /// The closure that begins the tasks. To cancel it leaves those that work alone.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// How many tasks work: were spawned, and are neither ended nor dropped.
    #[must_use]
    pub fn working(&self) -> usize {
        self.set.lock().working.len()
    }

    /// Lets no more begin, as [`Scheduled::cancel`], and has those that work dropped at their next
    /// poll, for which they are woken.
    pub fn abort(&self) -> Cancel {
        // First, so that no task works on if what the closure holds panics when it is dropped.
        let replaced = self.set.lock().replace(u64::MAX);
        replaced.wake();
        self.scheduled.cancel()
    }

    /// Waits until no run is under way and no task works, also if others are to come: for a quiet
    /// end, cancel before. A task of these, or the job that makes them, would wait for itself.
    /// Dropping the future changes nothing.
    pub async fn wait(&self) {
        UntilIdle { tasks: self, waiter: WaiterId::default() }.await;
    }
}

impl Future for UntilIdle<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (waker, this) = (context.waker().clone(), &mut *self);
        let replaced = this.tasks.set.lock().waiting.register(&mut this.waiter, waker);
        drop(replaced);
        match this.tasks.scheduled.is_running() || this.tasks.working() > 0 {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}

impl Drop for UntilIdle<'_> {
    fn drop(&mut self) {
        let waker = self.tasks.set.lock().waiting.deregister(&self.waiter);
        drop(waker);
    }
}

impl Observer for TaskSet {
    fn on_idle(&self, stopped: bool) {
        let mut state = self.lock();
        let queued = state.queued.take_if(|_| stopped);
        let wakers = state.take_waiters_if_idle();
        drop(state);
        wakers.wake();
        // Whoever stops it may have others to see to, and work of the user's to drop as well.
        quietly(|| drop(queued));
    }
}

impl TaskSet {
    /// What the scheduler's closure does: it begins a task at each run.
    pub(super) fn body<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        overlap: Overlap,
        mut spawn: impl FnMut(ScheduledTask) + Send + 'static,
        mut job: impl FnMut(Run) -> F + Send + 'static,
    ) -> impl FnMut(Run) + Send + 'static {
        let starter = TaskStarter { set: Arc::clone(self), overlap };
        move |run| {
            let task = starter.has_room().then(|| starter.start(Box::pin(job(run)))).flatten();
            if let Some(task) = task {
                spawn(task);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, TaskSetState> {
        ignore_poison(self.state.lock())
    }

    /// Before a poll. Returns whether the task is still wanted; then `waker` will wake it.
    fn register_waker(&self, number: u64, waker: Waker) -> bool {
        let mut state = self.lock();
        let wanted = number > state.replaced;
        let last = match state.working.get_mut(&number) {
            Some(place) if wanted => place.replace(waker),
            _ => Some(waker),
        };
        // A waker's drop is its runtime's code.
        drop(state);
        drop(last);
        wanted
    }

    /// A task's future has ended. Returns what it goes on with; if nothing, it works no more.
    fn next(&self, number: u64) -> Option<TaskFuture> {
        let mut state = self.lock();
        if let Some(queued) = state.queued.take() {
            return Some(queued);
        }
        let finished = state.remove_task(number);
        drop(state);
        finished.end();
        None
    }
}

impl TaskStarter {
    /// Whether a run that comes now is to have a future.
    fn has_room(&self) -> bool {
        let state = self.set.lock();
        state.working.is_empty()
            || match self.overlap {
                Overlap::Forbid => false,
                Overlap::Queue => state.queued.is_none(),
                Overlap::Allow | Overlap::Replace => true,
            }
    }

    /// A task for a run's future, to be spawned; `None` if one that works will go on with it.
    fn start(&self, future: TaskFuture) -> Option<ScheduledTask> {
        let mut state = self.set.lock();
        if self.overlap == Overlap::Queue && !state.working.is_empty() {
            state.queued = Some(future);
            return None;
        }
        let before = state.begun;
        let replaced = match self.overlap {
            Overlap::Replace => state.replace(before),
            _ => WakeList::default(),
        };
        let number = before + 1;
        state.begun = number;
        state.working.insert(number, None);
        drop(state);
        replaced.wake();
        Some(ScheduledTask { set: Arc::clone(&self.set), number, future: Some(future) })
    }
}

impl TaskSetState {
    /// Has the tasks up to this number dropped, once they are woken by what this returns.
    fn replace(&mut self, number: u64) -> WakeList {
        self.replaced = self.replaced.max(number);
        let before = self.working.range_mut(..=number);
        before.filter_map(|(_, waker)| waker.take()).collect()
    }

    /// Those to be told if no task works.
    fn take_waiters_if_idle(&mut self) -> WakeList {
        match self.working.is_empty() {
            true => self.waiting.take_all(),
            false => WakeList::default(),
        }
    }

    /// Counts a task no more. Returns what is to be dropped and woken without the lock.
    fn remove_task(&mut self, number: u64) -> FinishedTask {
        let own = self.working.remove(&number);
        // A run waits for its turn behind one task alone.
        let queued = own.as_ref().and_then(|_| self.queued.take());
        FinishedTask { own: own.flatten(), queued, wakers: self.take_waiters_if_idle() }
    }
}

/// What a task has left that works no more.
struct FinishedTask {
    own: Option<Waker>,
    queued: Option<TaskFuture>,
    wakers: WakeList,
}

impl FinishedTask {
    /// Tells who waits, and drops what is the user's, also because of a panic.
    fn end(self) {
        self.wakers.wake();
        let mut each = DropEach::default();
        each.drop_one(self.own);
        each.drop_one(self.queued);
    }
}

impl Future for ScheduledTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if !self.set.register_waker(self.number, context.waker().clone()) {
                self.end();
            }
            let Some(future) = &mut self.future else { return Poll::Ready(()) };
            if future.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.future = None;
            self.future = self.set.next(self.number);
        }
    }
}

impl ScheduledTask {
    /// Drops the future, and is counted no more, also if that panics.
    fn end(&mut self) {
        let mut each = DropEach::default();
        each.drop_one(self.future.take());
        let finished = self.set.lock().remove_task(self.number);
        finished.end();
    }
}

impl Drop for ScheduledTask {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ScheduledTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledTask").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for TaskSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskSet").field("working", &self.lock().working.len()).finish()
    }
}
