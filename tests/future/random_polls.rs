//! Random polls, resets and drops of a few sleeps, compared with a model that predicts when each is
//! ready and which task is woken.

#[path = "../common/setup.rs"]
mod setup;

use crate::common::sandbox::{Sandbox, Task};
use proptest::prelude::*;
use setup::{Setup, any_setup};
use std::task::Poll;
use std::time::{Duration, Instant};
use tourbillon::future::{Sleep, SleepWaker};
use tourbillon::{Clock, Expired, Refusal, TimerId};

const SLEEPS: usize = 3;
const TASKS: usize = 3;

/// Offsets from now and steps are in quarters of a tick, and span at most a few dozen revolutions
/// of the wheel.
#[derive(Clone, Debug)]
enum Op {
    Poll {
        sleep: usize,
        task: usize,
    },
    Reset {
        sleep: usize,
        offset: i32,
    },
    /// Asks for the id, which is then shared.
    Id {
        sleep: usize,
    },
    /// Resets by any id that was ever shared.
    ResetById {
        which: usize,
        offset: i32,
    },
    /// Drops a sleep and creates another.
    Renew {
        sleep: usize,
        offset: i32,
    },
    Advance {
        step: u32,
    },
    /// Moves the clock on, and keeps the expired wakers in hand.
    Take {
        step: u32,
    },
    /// Wakes the wakers in hand.
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Idle,
    /// Refused once, and to be polled again.
    LetGo,
    /// Due at that tick since the start. Zero means at the next sweep. `earlier` is set if it was
    /// moved there from a later deadline and not polled since.
    Armed {
        due: u64,
        told: Told,
        task: usize,
        id: Option<TimerId>,
        earlier: bool,
    },
    /// Taken by a sweep, and not yet polled.
    Fired {
        told: Told,
        by_id: bool,
    },
    Done,
    Refused,
}

/// The state of the wheel's timer for a sleep: its deadline, and by how much the sleep's deadline
/// may exceed it before the wheel is updated, in units of 2^16 ns.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Told {
    deadline: Instant,
    slack: u128,
}

impl Told {
    /// A bounded wheel is updated each time.
    fn at(deadline: Instant, now: Instant, bounded: bool) -> Self {
        let ahead = deadline.saturating_duration_since(now).as_nanos();
        Self { deadline, slack: if bounded { 0 } else { ahead >> 17 } }
    }

    /// Returns `true` if the wheel need not be updated for a deadline.
    fn covers(self, deadline: Instant) -> bool {
        deadline
            .checked_duration_since(self.deadline)
            .is_some_and(|later| later.as_nanos() >> 16 < self.slack)
    }
}

/// A sleep, and the model's state of it.
struct Known {
    sleep: Sleep,
    deadline: Instant,
    state: State,
}

struct Model {
    sandbox: Sandbox,
    /// The longest offset or step, in quarters of a tick.
    longest: u32,
    capacity: usize,
    known: Vec<Known>,
    tasks: Vec<Task>,
    /// The number of wakes that each task must have had since it was last compared.
    expected: [u32; TASKS],
    /// Wakers held at the instant of their expiry.
    in_hand: Vec<Expired<SleepWaker>>,
    tasks_in_hand: Vec<usize>,
    ids: Vec<TimerId>,
}

impl Model {
    fn new(setup: &Setup) -> Self {
        let (wheel, sweeper, clock) = setup.build();
        let sandbox = Sandbox::on(wheel, sweeper, clock);
        let deadline = sandbox.clock.start();
        let bits =
            setup.geometry.root_bits + (setup.geometry.levels - 1) * setup.geometry.level_bits;
        let new =
            |_| Known { sleep: sandbox.timer.sleep(Duration::ZERO), deadline, state: State::Idle };
        Self {
            longest: 1 << (bits + 7).min(25),
            known: (0..SLEEPS).map(new).collect(),
            capacity: setup.capacity.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(0)),
            tasks: (0..TASKS).map(|_| Task::new()).collect(),
            expected: [0; TASKS],
            in_hand: Vec::new(),
            tasks_in_hand: Vec::new(),
            ids: Vec::new(),
            sandbox,
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Poll { sleep, task } => self.poll(sleep, task),
            Op::Reset { sleep, offset } => self.reset(sleep, offset),
            Op::Id { sleep } => self.id(sleep),
            Op::ResetById { which, offset } => self.reset_by_id(which, offset),
            Op::Renew { sleep, offset } => {
                let deadline = self.around(offset);
                let sleep_until = self.sandbox.timer.sleep_until(deadline);
                self.known[sleep] = Known { sleep: sleep_until, deadline, state: State::Idle };
            }
            Op::Advance { step } => {
                self.take(step);
                self.release();
            }
            Op::Take { step } => self.take(step),
            Op::Release => self.release(),
        }
        self.compare();
    }

    /// Lets all time pass, and checks that nothing is left.
    fn finish(mut self) {
        for sleep in 0..SLEEPS {
            self.apply(&Op::Poll { sleep, task: sleep });
        }
        self.apply(&Op::Advance { step: self.longest - 1 });
        self.apply(&Op::Advance { step: 40 });
        for sleep in 0..SLEEPS {
            self.apply(&Op::Poll { sleep, task: 0 });
            let ended = matches!(self.known[sleep].state, State::Done | State::Refused);
            assert!(ended, "all time has passed");
        }
        self.known.clear();
        assert_eq!(self.sandbox.armed(), 0);
        assert!(self.tasks.iter().all(|task| task.held() == 0));
    }

    fn now(&self) -> Instant {
        self.sandbox.clock.now()
    }

    fn quarters(&self, quarters: u32) -> Duration {
        self.sandbox.tick / 4 * (quarters % self.longest)
    }

    fn around(&self, offset: i32) -> Instant {
        let (now, distance) = (self.now(), self.quarters(offset.unsigned_abs()));
        if offset < 0 { now.checked_sub(distance).unwrap_or(now) } else { now + distance }
    }

    /// Returns the tick when a timer with this deadline is due, rounded up unless it has passed.
    fn due(&self, deadline: Instant) -> u64 {
        if deadline <= self.now() {
            return 0;
        }
        let since = self.sandbox.since_start(deadline).as_nanos();
        u64::try_from(since.div_ceil(self.sandbox.tick.as_nanos())).unwrap_or(u64::MAX)
    }

    fn armed(&self) -> usize {
        self.known.iter().filter(|known| matches!(known.state, State::Armed { .. })).count()
    }

    fn poll(&mut self, which: usize, task: usize) {
        let answer = self.tasks[task].poll(&mut self.known[which].sleep);
        let now = self.now();
        let known = &mut self.known[which];
        let next = match known.state {
            State::Idle => match self.arm(which, task) {
                State::Refused => {
                    self.expected[task] += 1;
                    State::LetGo
                }
                next => next,
            },
            State::LetGo => self.arm(which, task),
            State::Armed { due, told, task: before, id, earlier }
                if before == task && !(earlier && now >= known.deadline) =>
            {
                State::Armed { due, told, task, id, earlier: false }
            }
            State::Armed { due, id, .. } => {
                if id.is_some() {
                    // A deadline that other code has set is adopted, rounded up.
                    known.deadline = known.sleep.deadline();
                    let kept = self.known[which].deadline;
                    assert_eq!(self.due(kept), if due == 0 { 0 } else { due.max(self.due(kept)) });
                }
                self.known[which].state = State::Idle;
                self.arm(which, task)
            }
            State::Fired { by_id: true, .. } => State::Done,
            State::Fired { .. } => self.arm(which, task),
            state @ (State::Done | State::Refused) => state,
        };
        self.known[which].state = next;
        let full = Refusal::AtCapacity { capacity: self.capacity as u64 };
        let expected = match next {
            State::Done => Poll::Ready(Ok(())),
            State::Refused => Poll::Ready(Err(full)),
            _ => Poll::Pending,
        };
        assert_eq!(answer, expected, "sleep {which} polled by task {task}");
    }

    fn arm(&self, which: usize, task: usize) -> State {
        if self.now() >= self.known[which].deadline {
            return State::Done;
        }
        if self.armed() >= self.capacity {
            return State::Refused;
        }
        let deadline = self.known[which].deadline;
        let told = Told::at(deadline, self.now(), self.capacity < usize::MAX);
        State::Armed { due: self.due(deadline), told, task, id: None, earlier: false }
    }

    fn reset(&mut self, which: usize, offset: i32) {
        let deadline = self.around(offset);
        // No deadline is before the creation of the timer.
        let deadline = deadline.max(self.sandbox.clock.start());
        let (due_then, told_then) =
            (self.due(deadline), Told::at(deadline, self.now(), self.capacity < usize::MAX));
        let known = &mut self.known[which];
        known.sleep.reset(deadline);
        let moved_earlier = deadline < std::mem::replace(&mut known.deadline, deadline);
        known.state = match known.state {
            State::Armed { due, told, task, id, earlier } => {
                let kept = id.is_none() && told.covers(deadline);
                let (due, told) = if kept { (due, told) } else { (due_then, told_then) };
                State::Armed { due, told, task, id, earlier: earlier || moved_earlier }
            }
            state @ State::Fired { told, by_id: false } if told.covers(deadline) => state,
            _ => State::Idle,
        };
    }

    fn id(&mut self, which: usize) {
        let id = self.known[which].sleep.id();
        let deadline = self.known[which].deadline;
        let (due_then, told_then) =
            (self.due(deadline), Told::at(deadline, self.now(), self.capacity < usize::MAX));
        match &mut self.known[which].state {
            State::Armed { due, told, id: handed_out, .. } => {
                if told.deadline != deadline && handed_out.is_none() {
                    (*due, *told) = (due_then, told_then);
                }
                // A sleep that is overdue may have no id.
                assert!(id.is_some() || *due == 0, "an armed sleep has an id");
                assert!(handed_out.is_none() || id == *handed_out, "the id stays");
                *handed_out = id;
                self.ids.extend(id);
            }
            State::Fired { by_id: true, .. } => (),
            state => {
                assert_eq!(id, None);
                if matches!(state, State::Fired { told, .. } if told.deadline != deadline) {
                    *state = State::Idle;
                }
            }
        }
    }

    fn reset_by_id(&mut self, which: usize, offset: i32) {
        let Some(&id) = self.ids.get(which % self.ids.len().max(1)) else { return };
        let deadline = self.around(offset);
        let due = self.due(deadline);
        let mut expected = false;
        for known in &mut self.known {
            if let State::Armed { due: armed, id: Some(own), .. } = &mut known.state {
                if *own == id {
                    (*armed, expected) = (due, true);
                }
            }
        }
        assert_eq!(self.sandbox.timer.wheel().reset_at(id, deadline), Ok(expected));
    }

    fn take(&mut self, step: u32) {
        self.in_hand.extend(self.sandbox.take(self.quarters(step)));
        let elapsed = self.sandbox.clock.elapsed().as_nanos();
        let now = elapsed / self.sandbox.tick.as_nanos();
        for known in &mut self.known {
            if let State::Armed { due, told, task, id, .. } = known.state {
                if u128::from(due) <= now {
                    known.state = State::Fired { told, by_id: id.is_some() };
                    self.tasks_in_hand.push(task);
                }
            }
        }
        assert_eq!(self.in_hand.len(), self.tasks_in_hand.len(), "early, or lost");
    }

    fn release(&mut self) {
        self.in_hand.drain(..).for_each(|timer| timer.value.wake());
        self.tasks_in_hand.drain(..).for_each(|task| self.expected[task] += 1);
    }

    fn compare(&mut self) {
        for (task, expected) in self.tasks.iter().zip(&mut self.expected) {
            assert_eq!(task.wakes(), std::mem::take(expected));
        }
        assert_eq!(self.sandbox.armed(), self.armed());
        let now = self.now();
        for known in &self.known {
            let elapsed = match known.state {
                State::Idle
                | State::LetGo
                | State::Fired { by_id: false, .. }
                | State::Armed { id: None, .. } => now >= known.deadline,
                state => matches!(state, State::Fired { .. } | State::Done),
            };
            assert_eq!(known.sleep.is_elapsed(), elapsed);
            // No deadline is before the creation of the timer.
            let deadline = known.deadline.max(self.sandbox.clock.start());
            assert_eq!(known.sleep.deadline(), deadline);
        }
    }
}

/// Offsets of all sizes, most of them short.
fn span() -> impl Strategy<Value = i32> {
    prop_oneof![4 => 0..20, 3 => 0..400, 1 => 0..40_000, 1 => 0..30_000_000]
}

fn op() -> impl Strategy<Value = Op> {
    let sleep = || 0..SLEEPS;
    let offset = || prop_oneof![1 => -40..0_i32, 8 => span()];
    let step = || span().prop_map(i32::unsigned_abs);
    let by_id = (any::<usize>(), offset());
    prop_oneof![
        8 => (sleep(), 0..TASKS).prop_map(|(sleep, task)| Op::Poll { sleep, task }),
        4 => (sleep(), offset()).prop_map(|(sleep, offset)| Op::Reset { sleep, offset }),
        2 => sleep().prop_map(|sleep| Op::Id { sleep }),
        3 => by_id.prop_map(|(which, offset)| Op::ResetById { which, offset }),
        3 => (sleep(), offset()).prop_map(|(sleep, offset)| Op::Renew { sleep, offset }),
        5 => step().prop_map(|step| Op::Advance { step }),
        2 => step().prop_map(|step| Op::Take { step }),
        2 => Just(Op::Release),
    ]
}

proptest! {
    #[test]
    fn sleeps_do_what_the_model_does(
        setup in any_setup(),
        ops in prop::collection::vec(op(), 0..120),
    ) {
        let mut model = Model::new(&setup);
        for op in &ops {
            model.apply(op);
        }
        model.finish();
    }
}
