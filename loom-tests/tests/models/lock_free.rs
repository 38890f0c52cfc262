//! Lock-freedom. One thread stops for good, after any number of its steps, and the others finish.
//!
//! A thread that waited for the stopped thread would loop until the bound on steps ends the model.
//! Each thread is the stopped one in turn, the sweeper included. It resumes only when no other
//! thread can run, so that the execution ends and its timers can be counted.

use loom_tests::{TICK, World, any_operations, beside, config, percent, sweep, sweep_after, v};
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// More steps than any execution takes without a waiting thread.
const MAX_STEPS: usize = 20_000;

/// Random schedules that stop one thread.
struct Stopping {
    random: RandomScheduler,
    threads: usize,
    /// The thread stops after fewer of its own steps than this.
    within: u64,
    schedule: usize,
    stops: TaskId,
    steps_left: u64,
    /// The number of steps that other threads took while it was stopped.
    meanwhile: Arc<AtomicUsize>,
}

impl Scheduler for Stopping {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.schedule += 1;
        self.stops = TaskId::from(self.schedule % self.threads);
        self.steps_left = self.random.next_u64() % self.within;
        self.random.new_execution()
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let others: Vec<&Task> =
            runnable.iter().copied().filter(|task| task.id() != self.stops).collect();
        let stands_still = self.steps_left == 0 && !others.is_empty();
        if stands_still {
            self.meanwhile.fetch_add(usize::from(others.len() < runnable.len()), Relaxed);
            return self.random.next_task(&others, current, is_yielding);
        }
        let next = self.random.next_task(runnable, current, is_yielding);
        self.steps_left = self.steps_left.saturating_sub(u64::from(next == Some(self.stops)));
        next
    }

    fn next_u64(&mut self) -> u64 {
        self.random.next_u64()
    }
}

/// Runs a model of `threads` threads. One of them stops after fewer than `within` steps.
fn one_stops(schedules: usize, threads: usize, within: u64, run: fn()) {
    let meanwhile = Arc::new(AtomicUsize::new(0));
    let scheduler = Stopping {
        random: RandomScheduler::new(schedules * percent() / 100),
        threads,
        within,
        schedule: 0,
        stops: TaskId::from(0),
        steps_left: 0,
        meanwhile: Arc::clone(&meanwhile),
    };
    let mut config = config();
    config.max_steps = shuttle::MaxSteps::FailAfter(MAX_STEPS);
    shuttle::Runner::new(scheduler, config).run(run);
    let meanwhile = meanwhile.load(Relaxed);
    assert!(meanwhile > 0, "nobody stood still");
    println!("steps while one thread stood still: {meanwhile}");
}

#[test]
fn all_operations() {
    one_stops(30_000, 4, 160, || any_operations(6));
}

/// Two resets to later, which rely on the timer's reference until the sweep has reached it. One
/// finds that it has, sets the refiling flag and stops. The other finds the same a moment later,
/// after it has set its deadline. (A timer that is due at once would not do, because the sweep ends
/// it and the flag has no owner any more.)
#[test]
fn a_holder_of_the_refiling_flag() {
    one_stops(60_000, 3, 24, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * 3).unwrap(); // its reference is visited at 2
        clock.advance(TICK * 2);
        let resetters = [5, 6]
            .map(|at| beside(&wheel, move |wheel| wheel.reset_at(id, start + TICK * at).unwrap()));
        let mut fired = sweep(&mut sweeper);
        for resetter in resetters {
            let _ = resetter.join().unwrap();
        }
        fired.extend(sweep_after(&mut sweeper, &clock, 4));
        assert_eq!(fired, [7]);
    });
}
