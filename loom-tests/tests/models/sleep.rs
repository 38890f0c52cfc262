//! A sleep's poll, reset and drop against the sweep that wakes it, a reset by its id, and the
//! shutdown. No wake-up is lost. A poll that returns `Pending` has its waker woken at the deadline,
//! and no sleep ends before it.

use loom_tests::explorer::thread::{self, JoinHandle};
use loom_tests::future::{Sleep, SleepWaker, Timer};
use loom_tests::{Builder, ManualClock, Refusal, Sweeper, TICK, Task, model, tiny};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Polls a sleep as a task.
fn poll(task: &Arc<Task>, sleep: &mut Sleep) -> Poll<Result<(), Refusal>> {
    Pin::new(sleep).poll(&mut Context::from_waker(&task.waker()))
}

/// A timer of one shard, its sweeper and its clock.
struct Night {
    timer: Timer,
    sweeper: Sweeper<SleepWaker>,
    clock: ManualClock,
}

impl Night {
    fn new() -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        Self { timer: Timer::new(wheel), sweeper, clock }
    }

    fn sweep(&mut self) {
        let _ = self.sweeper.sweep(|timer| timer.value.wake());
    }

    /// The number of ticks that have passed.
    fn now(&self) -> u32 {
        (self.clock.elapsed().as_millis() / TICK.as_millis()).try_into().unwrap()
    }

    /// Sweeps, and then advances the time until the task is woken. Returns the ticks that have
    /// passed by then.
    fn until_woken(&mut self, task: &Task, before: u32) {
        self.sweep();
        while task.woken() == before {
            assert!(self.now() < 8, "never woken");
            self.clock.advance(TICK);
            self.sweep();
        }
    }

    /// Asserts that the task is woken, polls, and has its answer at `at` ticks.
    fn ends_at(&mut self, mut polled: Polled, task: &Arc<Task>, at: u32) {
        // A wake-up of an earlier poll may come late. None of them ends the sleep early.
        while polled.answer.is_pending() {
            self.until_woken(task, polled.woken);
            polled = polled.again(task);
        }
        assert_eq!((polled.answer, self.now()), (Poll::Ready(Ok(())), at));
        drop(polled.sleep);
        assert!(self.timer.wheel().is_empty());
    }
}

/// A sleep that was polled.
struct Polled {
    sleep: Sleep,
    answer: Poll<Result<(), Refusal>>,
    /// The number of wake-ups of the task before the poll. If the poll returned `Pending`, another
    /// wake-up must follow without another poll.
    woken: u32,
}

impl Polled {
    fn by(task: &Arc<Task>, mut sleep: Sleep) -> Self {
        let woken = task.woken();
        let answer = poll(task, &mut sleep);
        Self { sleep, answer, woken }
    }

    fn again(self, task: &Arc<Task>) -> Self {
        Self::by(task, self.sleep)
    }

    /// Polls on another thread of the model, after `before`.
    fn beside(
        task: &Arc<Task>,
        mut sleep: Sleep,
        before: impl FnOnce(&mut Sleep) + Send + 'static,
    ) -> JoinHandle<Self> {
        let task = Arc::clone(task);
        thread::spawn(move || {
            before(&mut sleep);
            Self::by(&task, sleep)
        })
    }
}

/// The sweep is ahead of the poller's clock, which loom does not model.
#[test]
fn first_poll_against_the_sweep() {
    model(3, || {
        let mut night = Night::new();
        let (sleep, task) = (night.timer.sleep(TICK), Arc::<Task>::default());
        let poller = Polled::beside(&task, sleep, |_| ());
        let ahead = night.clock.start() + TICK;
        let _ = night.sweeper.sweep_at(ahead, |timer| timer.value.wake());
        let polled = poller.join().unwrap();
        night.clock.advance(TICK);
        night.ends_at(polled, &task, 1);
    });
}

#[test]
fn another_task_polls_against_the_sweep() {
    model(3, || {
        let mut night = Night::new();
        let (first, second) = (Arc::<Task>::default(), Arc::<Task>::default());
        let mut sleep = night.timer.sleep(TICK);
        assert!(poll(&first, &mut sleep).is_pending());
        let poller = Polled::beside(&second, sleep, |_| ());
        // The sweep is ahead of the poller's clock, by which the deadline has not come.
        let ahead = night.clock.start() + TICK;
        let _ = night.sweeper.sweep_at(ahead, |timer| timer.value.wake());
        let polled = poller.join().unwrap();
        assert!(polled.answer.is_pending());
        night.clock.advance(TICK);
        night.ends_at(polled, &second, 1);
        // The first waker was replaced, or the sleep had fired.
        assert!(first.woken() <= 1);
    });
}

/// The owner resets to `to` ticks from the start, and polls.
fn reset_and_poll_against_the_sweep(step: u32, to: u32) {
    model(3, move || {
        let mut night = Night::new();
        let start = night.clock.start();
        let (mut sleep, task) = (night.timer.sleep(TICK * 2), Arc::<Task>::default());
        assert!(poll(&task, &mut sleep).is_pending());
        night.clock.advance(TICK * step);
        let owner = Polled::beside(&task, sleep, move |sleep| sleep.reset(start + TICK * to));
        night.sweep();
        night.ends_at(owner.join().unwrap(), &task, to.max(step));
    });
}

/// The owner resets and does not poll again. The waker that is stored in the wheel is woken.
#[test]
fn reset_alone_against_the_sweep() {
    model(3, move || {
        let mut night = Night::new();
        let start = night.clock.start();
        let (sleep, task) = (night.timer.sleep(TICK * 2), Arc::<Task>::default());
        let polled = Polled::by(&task, sleep);
        night.clock.advance(TICK * 2);
        let owner = thread::spawn(move || {
            let mut polled = polled;
            polled.sleep.reset(start + TICK * 3);
            polled
        });
        night.sweep();
        night.ends_at(owner.join().unwrap(), &task, 3);
    });
}

#[test]
fn reset_to_later_against_the_sweep() {
    reset_and_poll_against_the_sweep(2, 3);
}

#[test]
fn reset_to_earlier_against_the_sweep() {
    reset_and_poll_against_the_sweep(1, 1);
}

#[test]
fn drop_against_the_sweep() {
    model(3, || {
        let mut night = Night::new();
        let (mut sleep, task) = (night.timer.sleep(TICK), Arc::<Task>::default());
        assert!(poll(&task, &mut sleep).is_pending());
        night.clock.advance(TICK);
        let owner = thread::spawn(move || drop(sleep));
        night.sweep();
        owner.join().unwrap();
        assert!(night.timer.wheel().is_empty());
        assert!(task.woken() <= 1);
        let woken = task.woken();
        night.clock.advance(TICK);
        night.sweep();
        assert_eq!((task.woken(), Arc::strong_count(&task)), (woken, 1));
    });
}

/// Another thread resets by the id while the sweep runs and the sleep moves to another task. A
/// reset that reports success takes effect.
fn remote_reset_against_another_task(preemptions: usize, step: u32, to: u32) {
    model(preemptions, move || {
        let mut night = Night::new();
        let start = night.clock.start();
        let (first, second) = (Arc::<Task>::default(), Arc::<Task>::default());
        let mut sleep = night.timer.sleep(TICK * 2);
        assert!(poll(&first, &mut sleep).is_pending());
        let id = sleep.id().unwrap();
        night.clock.advance(TICK * step);
        let resetter = {
            let wheel = night.timer.wheel().clone();
            thread::spawn(move || wheel.reset_at(id, start + TICK * to).unwrap())
        };
        let poller = Polled::beside(&second, sleep, |_| ());
        night.sweep();
        let due = if resetter.join().unwrap() { to } else { 2 };
        night.ends_at(poller.join().unwrap(), &second, due.max(step));
    });
}

#[test]
fn remote_reset_to_later_against_another_task() {
    remote_reset_against_another_task(2, 2, 3);
}

#[test]
fn remote_reset_to_earlier_against_another_task() {
    remote_reset_against_another_task(2, 1, 1);
}

#[test]
fn poll_against_the_shutdown() {
    model(3, || {
        let night = Night::new();
        let (sleep, task) = (night.timer.sleep(TICK), Arc::<Task>::default());
        let poller = Polled::beside(&task, sleep, |_| ());
        night.timer.shutdown();
        let polled = poller.join().unwrap();
        assert!(polled.answer != Poll::Ready(Ok(())), "before its time");
        // The task is woken and has its answer, with or without the drain.
        assert_eq!(task.woken(), u32::from(polled.answer.is_pending()));
        assert_eq!(polled.again(&task).answer, Poll::Ready(Err(Refusal::Closed)));
    });
}

/// A drain of a wheel that stays open takes the waker out and wakes the task. The task's next poll
/// arms the sleep again, although the wheel's time does not show that it has ended.
#[test]
fn poll_against_a_drain() {
    model(2, || {
        let mut night = Night::new();
        let (sleep, task) = (night.timer.sleep(TICK * 2), Arc::<Task>::default());
        // The second poll has observed that the wheel holds the timer.
        let polled = Polled::by(&task, sleep).again(&task);
        let poller = Polled::beside(&task, polled.sleep, |_| ());
        drop(night.timer.wheel().drain());
        night.ends_at(poller.join().unwrap(), &task, 2);
    });
}
