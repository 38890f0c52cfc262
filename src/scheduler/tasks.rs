//! Repeated tasks: [`ScheduledTask`] is the future that a runtime polls for one run, [`Tasks`] is
//! the caller's handle to all of them, and [`Overlap`] determines what happens to overlapping runs.
//!
//! A run of the scheduler's closure is short, because it only creates a task and hands it to a
//! runtime. A task therefore does not keep the closure busy. The tasks in progress are counted in
//! one state under a lock, and at each run their number decides about overlaps. Futures, wakers and
//! the user's closures never run while the lock is held. A task leaves the count when it is
//! dropped, on any thread, so a task that panics or that its runtime drops leaves it too.
//!
//! **The tasks are idle** if no run and no task is in progress. A waiter registers itself in the
//! state first. Then it checks for a run, and then for a task, in this order, because a run creates
//! a task but a task creates no run. If either of them ends after its check, it finds the waiter.

#![forbid(unsafe_code)]

use super::closure::Observer;
use super::handle::Scheduled;
use super::state::Cancel;
use super::work::Run;
use crate::panics::{DropEach, ignore_poison, quietly};
use crate::sync::{WaiterId, Waiters, WakeList};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// The behaviour of a run that is due while a task of an earlier run is in progress.
///
/// Three of the choices have the names of Kubernetes' `concurrencyPolicy`, but `Forbid` differs. In
/// Kubernetes a run that was not allowed to begin counts as missed. It begins after the job has
/// ended, if that is within `startingDeadlineSeconds`. Here it is skipped, and the next run is due
/// at its own time. [`Queue`](Self::Queue) makes up for such a run, without a deadline.
///
/// # Examples
///
/// Only the newest picture of the sky matters:
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
    /// The run is skipped, even if the task ends soon afterwards. A task that always takes longer
    /// than the period runs every second time.
    #[default]
    Forbid,
    /// The run begins after the task has ended. At most one run is queued and others are skipped.
    /// Its future is created at the time of the run. A queued run is also skipped if the task
    /// panics or its runtime drops it, and if the repetition is cancelled, or is shut down before
    /// its next run, but not if that was the last run.
    Queue,
    /// The run begins while the task is in progress.
    Allow,
    /// The run begins, and the task is woken and is dropped at its next poll.
    Replace,
}

/// The future of one run, which a runtime polls. It is counted as in progress until it is dropped.
pub struct ScheduledTask {
    set: Arc<TaskSet>,
    number: u64,
    /// `None` if the future has ended or was replaced.
    future: Option<TaskFuture>,
}

/// The future of a job.
type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handle to a repetition of tasks. Clones refer to the same repetition. Dropping a handle does
/// not end it.
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

/// The tasks in progress of a repetition.
#[derive(Default)]
pub(super) struct TaskSet {
    state: Mutex<TaskSetState>,
}

/// The state under the lock of the tasks.
#[derive(Default)]
struct TaskSetState {
    /// The number of tasks that were started so far.
    begun: u64,
    /// The tasks in progress, with their wakers once they have been polled.
    working: BTreeMap<u64, Option<Waker>>,
    /// Tasks up to this number are dropped at their next poll.
    replaced: u64,
    /// The future that the task in progress continues with after its own has ended.
    queued: Option<TaskFuture>,
    /// The tasks that wait until these tasks are idle.
    waiting: Waiters,
}

/// The part of the scheduler's closure that starts tasks.
struct TaskStarter {
    set: Arc<TaskSet>,
    overlap: Overlap,
}

/// A future that is ready when the tasks are idle.
struct UntilIdle<'t> {
    tasks: &'t Tasks,
    waiter: WaiterId,
}

impl Tasks {
    /// Starts a repetition of tasks. `schedule` schedules the closure that starts them.
    pub(super) fn start<E>(
        schedule: impl FnOnce(&Arc<TaskSet>) -> Result<Scheduled, E>,
    ) -> Result<Self, E> {
        let set = Arc::default();
        let scheduled = schedule(&set)?;
        Ok(Self { scheduled, set })
    }

    /// Returns the handle of the closure that starts the tasks. Cancelling it does not affect tasks
    /// in progress.
    #[must_use]
    pub fn scheduled(&self) -> &Scheduled {
        &self.scheduled
    }

    /// Returns the number of tasks in progress, which were spawned and have neither ended nor been
    /// dropped.
    #[must_use]
    pub fn working(&self) -> usize {
        self.set.lock().working.len()
    }

    /// Cancels all future runs, like [`Scheduled::cancel`]. Also wakes the tasks in progress, which
    /// are dropped at their next poll.
    pub fn abort(&self) -> Cancel {
        // First, so that no task continues if a value that the closure has captured panics when it
        // is dropped.
        let replaced = self.set.lock().replace(u64::MAX);
        replaced.wake();
        self.scheduled.cancel()
    }

    /// Waits until no run and no task is in progress, even if runs are to come. To end the
    /// repetition gracefully, cancel it first.
    ///
    /// One of these tasks, or the job that creates them, would wait for itself. Dropping the future
    /// has no effect.
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
        // The thread that stops the closure may have other closures to stop and other user code to
        // drop.
        quietly(|| drop(queued));
    }
}

impl TaskSet {
    /// Returns the scheduler's closure, which starts a task at each run.
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

    /// Stores `waker` before a poll, to wake the task when it is replaced. Returns `false` if the
    /// task was replaced.
    fn register_waker(&self, number: u64, waker: Waker) -> bool {
        let mut state = self.lock();
        let wanted = number > state.replaced;
        let last = match state.working.get_mut(&number) {
            Some(place) if wanted => place.replace(waker),
            _ => Some(waker),
        };
        // Dropping a waker runs the runtime's code.
        drop(state);
        drop(last);
        wanted
    }

    /// Returns the queued future, for a task to continue with after its own has ended. If none is
    /// queued, removes the task and wakes the waiters if it was the last.
    fn take_queued_or_finish(&self, number: u64) -> Option<TaskFuture> {
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
    /// Returns `true` if a run that is due now may have a future.
    fn has_room(&self) -> bool {
        let state = self.set.lock();
        state.working.is_empty()
            || match self.overlap {
                Overlap::Forbid => false,
                Overlap::Queue => state.queued.is_none(),
                Overlap::Allow | Overlap::Replace => true,
            }
    }

    /// Creates a task for the future of a run, or queues the future behind the task in progress.
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
    /// Marks the tasks up to this number as replaced. Returns their wakers.
    fn replace(&mut self, number: u64) -> WakeList {
        self.replaced = self.replaced.max(number);
        let before = self.working.range_mut(..=number);
        before.filter_map(|(_, waker)| waker.take()).collect()
    }

    /// Takes the waiters if no task is in progress.
    fn take_waiters_if_idle(&mut self) -> WakeList {
        match self.working.is_empty() {
            true => self.waiting.take_all(),
            false => WakeList::default(),
        }
    }

    /// Removes a task. The caller ends the returned value after it has released the lock.
    fn remove_task(&mut self, number: u64) -> FinishedTask {
        let own = self.working.remove(&number);
        // A run is queued behind a single task.
        let queued = own.as_ref().and_then(|_| self.queued.take());
        FinishedTask { own: own.flatten(), queued, wakers: self.take_waiters_if_idle() }
    }
}

/// The values that a removed task has left.
struct FinishedTask {
    own: Option<Waker>,
    queued: Option<TaskFuture>,
    wakers: WakeList,
}

impl FinishedTask {
    /// Wakes the waiters and drops the user's values, even if one of them panics.
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
            self.future = self.set.take_queued_or_finish(self.number);
        }
    }
}

impl ScheduledTask {
    /// Drops the future and removes the task, even if the drop panics.
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
