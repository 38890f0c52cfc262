//! [`Process`], a process with a clock and tasks of its own.

use super::world::{Nanos, World, drifted};
use crate::panics::ignore_poison;
use crate::store::remote::host::Host;
use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use tourbillon::future::{SleepWaker, Timer};
use tourbillon::{Builder, Clock, Sweeper};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The clock of a process, which may be faster or slower than the time of the world.
pub(crate) struct ProcessClock {
    world: World,
    /// Parts per million.
    drift: i64,
}

impl ProcessClock {
    /// Returns what the clock shows at a time of the world.
    fn shown(&self, at: Nanos) -> Nanos {
        drifted(at, self.drift)
    }

    /// Returns the first time of the world at which the clock shows `instant`.
    fn world_time(&self, instant: Instant) -> Nanos {
        let local = instant.saturating_duration_since(self.world.start()).as_nanos();
        let local = u64::try_from(local).unwrap_or(u64::MAX / 2);
        let mut time = drifted(local, -self.drift);
        while self.shown(time) < local {
            time += 1 + (local - self.shown(time));
        }
        time
    }
}

impl Clock for ProcessClock {
    fn now(&self) -> Instant {
        self.world.start() + Duration::from_nanos(self.shown(self.world.now()))
    }
}

impl fmt::Debug for ProcessClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessClock").field("drift", &self.drift).finish_non_exhaustive()
    }
}

/// A process, which can be suspended and killed.
pub(crate) struct Process {
    pub(crate) number: u64,
    pub(crate) world: World,
    pub(crate) timer: Timer,
    clock: Arc<ProcessClock>,
    inner: Mutex<Inner>,
    woken: Mutex<Vec<u64>>,
    is_runnable: AtomicBool,
    is_dead: AtomicBool,
    is_paused: AtomicBool,
}

struct Inner {
    tasks: BTreeMap<u64, (Task, Arc<TaskWaker>)>,
    last: u64,
    /// `None` while the process runs, and after its end.
    sweeper: Option<Sweeper<SleepWaker>>,
    /// The time of the next run that is planned.
    planned: Option<Nanos>,
    /// The highest number of tasks so far.
    most: usize,
}

/// Wakes one task of a process.
struct TaskWaker {
    process: std::sync::Weak<Process>,
    task: u64,
    is_woken: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Relaxed) {
            return;
        }
        if let Some(process) = self.process.upgrade() {
            ignore_poison(process.woken.lock()).push(self.task);
            process.become_runnable();
        }
    }
}

impl Process {
    /// Starts a process without a task.
    pub(crate) fn start(world: &World, drift: i64) -> Arc<Self> {
        let clock = Arc::new(ProcessClock { world: world.clone(), drift });
        let builder = Builder::new().shards(1).clock(SharedClock(Arc::clone(&clock)));
        let (wheel, sweeper) = builder.build().expect("the defaults are in range");
        let number = world.number_process();
        let inner = Inner {
            tasks: BTreeMap::new(),
            last: 0,
            sweeper: Some(sweeper),
            planned: None,
            most: 0,
        };
        Arc::new(Self {
            number,
            world: world.clone(),
            timer: Timer::new(wheel),
            clock,
            inner: Mutex::new(inner),
            woken: Mutex::default(),
            is_runnable: AtomicBool::new(false),
            is_dead: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
        })
    }

    /// Starts a task. A process that was killed drops it.
    pub(crate) fn spawn(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) {
        if self.is_dead() {
            return;
        }
        let mut inner = self.lock();
        inner.last += 1;
        let number = inner.last;
        let process = Arc::downgrade(self);
        let waker = TaskWaker { process, task: number, is_woken: AtomicBool::new(false) };
        let waker = Arc::new(waker);
        inner.tasks.insert(number, (Box::pin(task), Arc::clone(&waker)));
        inner.most = inner.most.max(inner.tasks.len());
        drop(inner);
        waker.wake();
    }

    /// Ends the process in the middle of what it does.
    pub(crate) fn kill(&self) {
        self.is_dead.store(true, Relaxed);
        let mut inner = self.lock();
        let tasks = mem::take(&mut inner.tasks);
        let sweeper = inner.sweeper.take();
        drop(inner);
        drop(tasks);
        drop(sweeper);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Relaxed)
    }

    /// Suspends the process, whose clock continues, or resumes it.
    pub(crate) fn set_paused(self: &Arc<Self>, paused: bool) {
        self.is_paused.store(paused, Relaxed);
        if !paused {
            self.become_runnable();
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused.load(Relaxed)
    }

    /// Returns the highest number of tasks so far.
    pub(crate) fn most_tasks(&self) -> usize {
        self.lock().most
    }

    pub(crate) fn become_runnable(self: &Arc<Self>) {
        if !self.is_runnable.swap(true, Relaxed) {
            self.world.add_runnable(Arc::clone(self));
        }
    }

    /// Polls woken tasks until there are none, and plans the next run.
    pub(crate) fn run(self: &Arc<Self>) {
        self.is_runnable.store(false, Relaxed);
        if self.is_dead() || self.is_paused() {
            return;
        }
        let mut inner = self.lock();
        let Some(mut sweeper) = inner.sweeper.take() else { return };
        // Time passes between runs only. A timer that is armed for now fires in the next run.
        let is_due = inner.planned.is_some_and(|planned| planned <= self.world.now());
        inner.planned.take_if(|_| is_due);
        drop(inner);
        if is_due {
            let _ = sweeper.sweep(|timer| timer.value.wake());
        }
        loop {
            let mut woken = mem::take(&mut *ignore_poison(self.woken.lock()));
            if woken.is_empty() {
                break;
            }
            self.world.draw(|random| random.shuffle(&mut woken));
            for task in woken {
                self.poll(task);
            }
            if self.is_dead() {
                return;
            }
        }
        self.is_runnable.store(false, Relaxed);
        let next = sweeper.next_deadline().map(|next| self.clock.world_time(next));
        let mut inner = self.lock();
        inner.sweeper = Some(sweeper);
        let Some(next) = next.filter(|next| inner.planned.is_none_or(|planned| *next < planned))
        else {
            return;
        };
        inner.planned = Some(next);
        drop(inner);
        let process = Arc::downgrade(self);
        self.world.at(next, move || {
            if let Some(process) = process.upgrade() {
                process.become_runnable();
            }
        });
    }

    fn poll(&self, number: u64) {
        let Some((mut task, waker)) = self.lock().tasks.remove(&number) else { return };
        waker.is_woken.store(false, Relaxed);
        let wakes = Waker::from(Arc::clone(&waker));
        let pending = task.as_mut().poll(&mut Context::from_waker(&wakes)).is_pending();
        if pending && !self.is_dead() {
            self.lock().tasks.insert(number, (task, waker));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        ignore_poison(self.inner.lock())
    }
}

/// A handle of a clock for a wheel.
#[derive(Debug)]
struct SharedClock(Arc<ProcessClock>);

impl Clock for SharedClock {
    fn now(&self) -> Instant {
        self.0.now()
    }
}

/// The host of the requests of a process.
#[derive(Clone)]
pub(crate) struct ProcessHost(pub(crate) Arc<Process>);

impl Host for ProcessHost {
    fn now(&self) -> Instant {
        self.0.clock.now()
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + Send {
        let sleep = self.0.timer.sleep_until(deadline);
        async move {
            if sleep.await.is_err() {
                // The process was killed.
                std::future::pending::<()>().await;
            }
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }
}
