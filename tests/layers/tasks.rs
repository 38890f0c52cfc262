//! Repeated tasks: overlapping runs, and the end of tasks.

use crate::common::desk::Desk;
use crate::common::woken::Woken;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tourbillon::scheduler::{
    Cancel, Ending, JoinError, Overlap, RepeatRefusal, ScheduledTask, Tasks, Unrun,
};

use Did::{Begun, Dropped, Ended, Made};

const SECOND: Duration = Duration::from_secs(1);

/// The events of each task, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Did {
    #[default]
    Made,
    Begun,
    Ended,
    Dropped,
}

/// The futures of one job. Each is pending until the test ends it.
#[derive(Clone, Default)]
struct Jobs(Arc<Mutex<Vec<(Did, bool)>>>);

impl Jobs {
    fn lock(&self) -> MutexGuard<'_, Vec<(Did, bool)>> {
        self.0.lock().unwrap()
    }

    fn make(&self) -> Job {
        self.lock().push((Did::Made, false));
        Job { jobs: self.clone(), number: self.lock().len() - 1 }
    }

    fn end(&self, number: usize) {
        self.lock()[number].1 = true;
    }

    fn did(&self) -> Vec<Did> {
        self.lock().iter().map(|(did, _)| *did).collect()
    }
}

struct Job {
    jobs: Jobs,
    number: usize,
}

impl Future for Job {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let (did, ends) = &mut self.jobs.lock()[self.number];
        *did = if *ends { Did::Ended } else { Did::Begun };
        if *ends { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let did = &mut self.jobs.lock()[self.number].0;
        if *did != Did::Ended {
            *did = Did::Dropped;
        }
    }
}

fn each_second(last: Instant) -> Option<Instant> {
    Some(last + SECOND)
}

/// A repetition of tasks every second, and a runtime that the test polls.
struct Bench {
    desk: Desk,
    jobs: Jobs,
    spawned: Arc<Mutex<Vec<ScheduledTask>>>,
    woken: Arc<Woken>,
    tasks: Tasks,
}

impl Bench {
    fn new(overlap: Overlap) -> Self {
        Self::by(overlap, each_second)
    }

    fn by(overlap: Overlap, rule: impl FnMut(Instant) -> Option<Instant> + Send + 'static) -> Self {
        Self::of(overlap, rule, Jobs::make)
    }

    fn of<F: Future<Output = ()> + Send + 'static>(
        overlap: Overlap,
        rule: impl FnMut(Instant) -> Option<Instant> + Send + 'static,
        mut job: impl FnMut(&Jobs) -> F + Send + 'static,
    ) -> Self {
        let (desk, jobs) = (Desk::new(), Jobs::default());
        let spawned = Arc::<Mutex<Vec<ScheduledTask>>>::default();
        let (made, runtime) = (jobs.clone(), Arc::clone(&spawned));
        let spawn = move |task| runtime.lock().unwrap().push(task);
        let by = desk.scheduler.by(rule);
        let tasks = by.run_tasks(overlap, spawn, move || job(&made)).unwrap();
        Self { desk, jobs, spawned, woken: Arc::default(), tasks }
    }

    /// Advances the clock by a second, and then polls all tasks.
    fn pass(&mut self) {
        self.desk.advance(SECOND);
        self.poll();
    }

    fn poll(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        let mut context = Context::from_waker(&waker);
        self.spawned.lock().unwrap().retain_mut(|task| pin!(task).poll(&mut context).is_pending());
    }
}

#[test]
fn a_forbidden_run_is_skipped() {
    let mut bench = Bench::new(Overlap::Forbid);
    bench.pass();
    bench.pass();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Begun], 1));
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended], 0));
    bench.pass();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Begun], 1));
}

#[test]
fn a_queued_run_continues_in_the_task_that_ended() {
    let mut bench = Bench::new(Overlap::Queue);
    bench.pass();
    bench.pass();
    bench.pass();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Begun, Made], 1));
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Begun], 1));
    bench.jobs.end(1);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Ended], 0));
    bench.pass();
    assert_eq!(bench.jobs.did(), [Ended, Ended, Begun]);
}

#[test]
fn allowed_runs_overlap() {
    let mut bench = Bench::new(Overlap::Allow);
    bench.pass();
    bench.pass();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Begun, Begun], 2));
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Begun], 1));
}

#[test]
fn a_run_replaces_and_wakes_the_task_in_progress() {
    let mut bench = Bench::new(Overlap::Replace);
    bench.pass();
    assert_eq!(bench.woken.times(), 0);
    bench.desk.advance(SECOND);
    assert_eq!(bench.woken.times(), 1, "it is polled, to be dropped");
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Dropped, Begun], 1));
    bench.jobs.end(1);
    bench.poll();
    bench.pass();
    assert_eq!((bench.jobs.did(), bench.woken.times()), (vec![Dropped, Ended, Begun], 1));
}

#[test]
fn an_ended_task_is_not_counted_even_if_its_runtime_keeps_it() {
    let mut bench = Bench::new(Overlap::Forbid);
    bench.desk.advance(SECOND);
    bench.jobs.end(0);
    let mut context = Context::from_waker(Waker::noop());
    let mut spawned = bench.spawned.lock().unwrap();
    assert!(pin!(&mut spawned[0]).poll(&mut context).is_ready());
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended], 0));
    assert!(pin!(&mut spawned[0]).poll(&mut context).is_ready(), "and may poll it again");
}

#[test]
fn a_dropped_task_is_not_counted() {
    for overlap in [Overlap::Forbid, Overlap::Queue] {
        let mut bench = Bench::new(overlap);
        bench.pass();
        bench.pass();
        bench.spawned.lock().unwrap().clear();
        assert_eq!(bench.tasks.working(), 0);
        assert!(bench.jobs.did().iter().all(|did| *did == Dropped), "and the queued run");
        bench.pass();
        assert_eq!(bench.jobs.did().last(), Some(&Begun));
    }
}

#[test]
fn a_cancel_keeps_the_task_and_drops_the_queued_run() {
    let mut bench = Bench::new(Overlap::Queue);
    bench.pass();
    bench.pass();
    assert_eq!(bench.tasks.scheduled().cancel(), Cancel::Prevented);
    assert_eq!(bench.jobs.did(), [Begun, Dropped]);
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Dropped], 0));
}

#[test]
fn a_queued_run_begins_after_the_rule_has_ended() {
    let mut left = 2;
    let mut bench = Bench::by(Overlap::Queue, move |last| {
        left -= 1;
        (left >= 0).then(|| last + SECOND)
    });
    bench.pass();
    bench.pass();
    assert_eq!(bench.tasks.scheduled().ending(), Some(Ending::Done));
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Begun], 1));
}

#[test]
fn a_queued_run_does_not_begin_after_a_shutdown() {
    let mut bench = Bench::new(Overlap::Queue);
    bench.pass();
    bench.pass();
    let unrun = bench.desk.scheduler.shutdown();
    assert_eq!((bench.jobs.did(), unrun.len()), (vec![Begun, Dropped], 1));
    // Unless the test runs it.
    unrun.into_iter().for_each(Unrun::run);
    bench.jobs.end(0);
    bench.poll();
    assert_eq!(bench.jobs.did(), [Ended, Dropped, Begun]);
}

#[test]
fn an_abort_drops_the_tasks_and_ends_the_waits() {
    let mut bench = Bench::new(Overlap::Allow);
    bench.pass();
    bench.pass();
    let waits = Arc::<Woken>::default();
    let tasks = bench.tasks.clone();
    let mut quiet = Box::pin(tasks.wait());
    let waker = Waker::from(Arc::clone(&waits));
    let mut context = Context::from_waker(&waker);
    assert!(quiet.as_mut().poll(&mut context).is_pending());
    assert!(quiet.as_mut().poll(&mut context).is_pending());
    assert_eq!(bench.tasks.abort(), Cancel::Prevented);
    assert_eq!((bench.woken.times(), waits.times()), (2, 0));
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Dropped, Dropped], 0));
    assert_eq!(waits.times(), 1);
    assert!(quiet.as_mut().poll(&mut context).is_ready());
    assert_eq!(bench.tasks.scheduled().ending(), Some(Ending::Cancelled));
}

/// A run may be in progress when the tasks are aborted. Its task must not start.
#[test]
fn a_task_that_is_spawned_after_the_abort_does_nothing() {
    let mut desk = Desk::new();
    let (handle, spawned) = (Arc::new(Mutex::new(None::<Tasks>)), Arc::new(Mutex::new(None)));
    let (aborts, runtime) = (Arc::clone(&handle), Arc::clone(&spawned));
    let jobs = Jobs::default();
    let made = jobs.clone();
    let job = move || {
        let tasks = aborts.lock().unwrap().clone().unwrap();
        assert_eq!(tasks.abort(), Cancel::LastRun);
        made.make()
    };
    let spawn = move |task| *runtime.lock().unwrap() = Some(task);
    let tasks = desk.scheduler.every(SECOND).run_tasks(Overlap::Forbid, spawn, job).unwrap();
    *handle.lock().unwrap() = Some(tasks.clone());
    desk.advance(SECOND);
    let mut task = spawned.lock().unwrap().take().unwrap();
    assert!(pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!((jobs.did(), tasks.working()), (vec![Dropped], 0));
}

/// A future that waits until the tasks are idle, and can be polled with any waker.
type Waits = Arc<Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>>;

/// A run may be in progress that has not created a task yet, and creates none. Here its future is
/// dropped immediately.
#[test]
fn a_wait_includes_a_run_in_progress() {
    let mut desk = Desk::new();
    let (waits, woken) = (Waits::default(), Arc::<Woken>::default());
    let (polls, waker) = (Arc::clone(&waits), Waker::from(Arc::clone(&woken)));
    let is_quiet = move || {
        let mut waits = polls.lock().unwrap();
        waits.as_mut().unwrap().as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    };
    let (in_job, in_spawn) = (is_quiet.clone(), is_quiet.clone());
    let job = move || {
        assert!(!in_job());
        std::future::ready(())
    };
    let spawn = move |task| {
        drop::<ScheduledTask>(task);
        assert!(!in_spawn());
    };
    let tasks = desk.scheduler.every(SECOND).run_tasks(Overlap::Forbid, spawn, job).unwrap();
    let waiting = tasks.clone();
    *waits.lock().unwrap() = Some(Box::pin(async move { waiting.wait().await }));
    desk.advance(SECOND);
    assert_eq!((tasks.scheduled().ending(), woken.times()), (None, 2), "by the task and the run");
    assert!(is_quiet());
}

#[test]
fn a_dropped_wait_leaves_nothing() {
    let mut bench = Bench::new(Overlap::Forbid);
    bench.pass();
    let woken = Arc::<Woken>::default();
    for _ in 0..3 {
        let waker = Waker::from(Arc::clone(&woken));
        assert!(pin!(bench.tasks.wait()).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!((bench.tasks.working(), Arc::strong_count(&woken)), (1, 1));
}

/// Panics when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[test]
fn a_task_whose_drop_panics_is_not_counted() {
    let mut bench = Bench::of(Overlap::Forbid, each_second, |_| {
        let grenade = Grenade;
        async move { drop(grenade) }
    });
    bench.desk.advance(SECOND);
    let task = bench.spawned.lock().unwrap().pop().unwrap();
    assert_eq!(bench.tasks.working(), 1);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(task))).is_err());
    assert_eq!(bench.tasks.working(), 0);
}

#[test]
fn an_abort_drops_the_tasks_even_if_the_job_panics() {
    let grenade = Grenade;
    let mut bench = Bench::of(Overlap::Forbid, each_second, move |jobs| {
        let _held = &grenade;
        jobs.make()
    });
    bench.desk.advance(SECOND);
    assert!(catch_unwind(AssertUnwindSafe(|| bench.tasks.abort())).is_err());
    let mut task = bench.spawned.lock().unwrap().pop().unwrap();
    assert!(pin!(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_ready());
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Dropped], 0));
}

#[test]
fn a_panic_of_the_job_is_a_panic_of_the_run() {
    let mut desk = Desk::new();
    let job = || -> std::future::Ready<()> { panic!("on purpose") };
    let tasks = desk.scheduler.every(SECOND).run_tasks(Overlap::Forbid, drop, job).unwrap();
    let fired = catch_unwind(AssertUnwindSafe(|| desk.advance(SECOND)));
    assert!(fired.is_err());
    assert_eq!((tasks.scheduled().ending(), tasks.working()), (Some(Ending::Panicked), 0));
}

#[test]
fn a_refusal_returns_spawn_and_job() {
    let desk = Desk::new();
    let every = desk.scheduler.every(Duration::ZERO);
    let refused = every.run_tasks(Overlap::Allow, drop, || async {}).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::ZeroPeriod);
    let (spawn, job) = refused.value;
    desk.scheduler.wheel().close();
    let by = desk.scheduler.every(SECOND);
    let refused = by.run_tasks(Overlap::Allow, spawn, job).unwrap_err();
    assert!(matches!(refused.reason, RepeatRefusal::Wheel(_)));
    let by = desk.scheduler.by(|_| None);
    let refused = by.run_tasks(Overlap::Allow, refused.value.0, refused.value.1).unwrap_err();
    assert_eq!(refused.reason, RepeatRefusal::Never);
}

/// A queued run whose drop panics. The shutdown still has the other closures to end.
#[test]
fn a_queued_run_whose_drop_panics_affects_no_other_closure() {
    let mut bench = Bench::of(Overlap::Queue, each_second, |_| {
        let grenade = Grenade;
        async move {
            std::future::pending::<()>().await;
            drop(grenade);
        }
    });
    let other = bench.desk.scheduler.after(SECOND * 3600, || ()).unwrap();
    bench.pass();
    bench.pass();
    let unrun = bench.desk.scheduler.shutdown();
    assert_eq!(unrun.len(), 2);
    drop(unrun);
    assert!(matches!(other.join(), Err(JoinError::NotRun)));
    let working = bench.spawned.lock().unwrap().pop();
    assert!(catch_unwind(AssertUnwindSafe(|| drop(working))).is_err());
}

#[test]
fn the_last_run_on_a_closed_wheel_is_queued() {
    let mut bench = Bench::new(Overlap::Queue);
    bench.pass();
    bench.desk.scheduler.wheel().close();
    bench.pass();
    assert_eq!(bench.tasks.scheduled().ending(), Some(Ending::ShutDown));
    bench.jobs.end(0);
    bench.poll();
    assert_eq!((bench.jobs.did(), bench.tasks.working()), (vec![Ended, Begun], 1));
}
