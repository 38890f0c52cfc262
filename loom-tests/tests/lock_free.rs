//! Lock-freedom: one thread stops for good, after any number of its steps, and the others finish.
//!
//! A thread that waited for the one that stands still would go round until the bound on steps ends
//! the model. Each thread is the one that stands still in turn, the sweeper's too; it goes on only
//! when no other thread can, so that the execution ends and its timers can be counted.

#![cfg(shuttle)]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a model fails by panicking")]

use loom_tests::{
    TICK, TimerId, World, beside, drain, factor, sweep, sweep_after, sweep_with_upkeep, v,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{RandomScheduler, Schedule, Scheduler, Task, TaskId};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// More steps than any execution has in which nobody waits.
const MOST_STEPS: usize = 20_000;

/// Random schedules in which one thread stops.
struct Stopping {
    random: RandomScheduler,
    threads: usize,
    /// It stops after fewer of its own steps than this.
    within: u64,
    schedule: usize,
    stops: TaskId,
    steps_left: u64,
    /// How many steps others took while it stood still.
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

/// Runs a model of so many threads, one of which stops after fewer than `within` steps.
fn one_stops(schedules: usize, threads: usize, within: u64, run: fn()) {
    let meanwhile = Arc::new(AtomicUsize::new(0));
    let scheduler = Stopping {
        random: RandomScheduler::new(schedules * factor()),
        threads,
        within,
        schedule: 0,
        stops: TaskId::from(0),
        steps_left: 0,
        meanwhile: Arc::clone(&meanwhile),
    };
    let mut config = shuttle::Config::new();
    config.silence_warnings = true;
    config.max_steps = shuttle::MaxSteps::FailAfter(MOST_STEPS);
    shuttle::Runner::new(scheduler, config).run(run);
    let meanwhile = meanwhile.load(Relaxed);
    assert!(meanwhile > 0, "nobody stood still");
    println!("steps while one thread stood still: {meanwhile}");
}

/// Three callers insert, reset and cancel, while the sweeper sweeps and tidies.
#[test]
fn all_operations() {
    one_stops(30_000, 4, 160, || {
        let World { wheel, mut sweeper, clock } = World::new();
        // The standard library's lock: shuttle never switches inside it, so nobody stops there.
        let ids = Arc::new(Mutex::new(Vec::<TimerId>::new()));
        let callers = [0, 100, 200].map(|first| {
            let ids = Arc::clone(&ids);
            beside(&wheel, move |wheel| {
                let mut cancelled = Vec::<u64>::new();
                for number in first..first + 6 {
                    let delay = TICK * thread_rng().gen_range(0..7);
                    let known = ids.lock().unwrap().clone();
                    let any = known.get(thread_rng().gen_range(0..=known.len())).copied();
                    match (thread_rng().gen_range(0..3), any) {
                        (0, Some(id)) => drop(wheel.reset(id, delay).unwrap()),
                        (1, Some(id)) => cancelled.extend(wheel.cancel(id).map(u64::from)),
                        _ => {
                            let id = wheel.insert(v(number), delay).unwrap();
                            ids.lock().unwrap().push(id);
                        }
                    }
                }
                cancelled
            })
        });
        let mut ended = Vec::new();
        for step in [0, 1, 0, 2, 5] {
            clock.advance(TICK * step);
            ended.extend(sweep_with_upkeep(&wheel, &mut sweeper));
        }
        for caller in callers {
            ended.extend(caller.join().unwrap());
        }
        ended.extend(sweep_after(&mut sweeper, &clock, 7));
        assert!(drain(&wheel).is_empty(), "due and not handed over");
        assert_eq!(ended.len(), ids.lock().unwrap().len(), "lost or doubled");
    });
}

/// A reset to earlier sets the relinking flag and stops. Another reset, which relied on the name
/// that the sweep has taken since, needs a new one.
#[test]
fn a_holder_of_the_relinking_flag() {
    one_stops(60_000, 3, 24, || {
        let World { wheel, mut sweeper, clock } = World::new();
        let start = clock.start();
        let id = wheel.insert(v(7), TICK * 3).unwrap(); // its name is met at 2
        clock.advance(TICK * 2);
        let resetters = [1, 5]
            .map(|at| beside(&wheel, move |wheel| wheel.reset_at(id, start + TICK * at).unwrap()));
        let mut fired = sweep(&mut sweeper);
        for resetter in resetters {
            let _ = resetter.join().unwrap();
        }
        fired.extend(sweep_after(&mut sweeper, &clock, 3));
        assert_eq!(fired, [7]);
    });
}
