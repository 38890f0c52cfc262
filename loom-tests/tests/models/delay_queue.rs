//! The stream of a delay queue against inserts, removals and the close. It is woken for an earlier
//! value, and ends exactly when no value is left and none can be inserted.
//!
//! Loom does not model the steps of the `AtomicWaker` that synchronises a poll with a wake-up.
//! Under loom each poll therefore comes after the operation that woke it, and [`Beside::is_over`]
//! leaves out the schedules where only that waker would have ordered the other thread before the
//! poll.

use loom_tests::explorer::thread::{self, JoinHandle};
use loom_tests::future::{DelayQueue, DelayQueueHandle, SleepWaker, Timer};
use loom_tests::{Builder, ManualClock, Sweeper, TICK, Task, model, tiny};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll};

/// A queue, the task that polls it, and its timer.
struct Desk {
    queue: DelayQueue<u64>,
    task: Arc<Task>,
    sweeper: Sweeper<SleepWaker>,
    clock: ManualClock,
}

impl Desk {
    fn new() -> Self {
        let clock = ManualClock::new();
        let (wheel, sweeper) = tiny(Builder::new(), &clock).build().unwrap();
        let shape = tiny(Builder::new(), &clock);
        // On a larger stack, because the red zones of AddressSanitizer overflow a usual one.
        let thread = thread::Builder::new().stack_size(1 << 18);
        let build = move || DelayQueue::new(&Timer::new(wheel), shape).unwrap();
        let queue = thread.spawn(build).unwrap().join().unwrap();
        Self { queue, task: Arc::default(), sweeper, clock }
    }

    fn woken(&self) -> u32 {
        self.task.woken()
    }

    fn poll(&mut self) -> Poll<Option<u64>> {
        let waker = self.task.waker();
        let next = self.queue.poll_expired(&mut Context::from_waker(&waker));
        next.map(|expired| expired.map(|expired| expired.value))
    }

    /// Polls as long as the task is woken, without advancing the time.
    fn clear_refiling(
        &mut self,
        mut polled: Poll<Option<u64>>,
        mut before: u32,
    ) -> Poll<Option<u64>> {
        while polled.is_pending() && self.woken() > before {
            before = self.woken();
            assert!(before < 16, "woken for nothing");
            polled = self.poll();
        }
        polled
    }
}

/// A thread of the model that uses a handle.
struct Beside<R> {
    thread: JoinHandle<(R, DelayQueueHandle<u64>)>,
    over: Arc<AtomicBool>,
}

impl<R: Send + 'static> Beside<R> {
    fn run(desk: &Desk, run: impl FnOnce(&DelayQueueHandle<u64>) -> R + Send + 'static) -> Self {
        let (handle, over) = (desk.queue.handle(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let answer = run(&handle);
            told.store(true, SeqCst);
            (answer, handle)
        });
        Self { thread, over }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }
}

/// An insert that is due before the stream's sleep wakes the stream.
#[test]
fn insert_against_the_poll() {
    model(3, || {
        let mut desk = Desk::new();
        let inserter = Beside::run(&desk, |handle| handle.insert(7, TICK).unwrap());
        let mut polled = desk.poll();
        // Dropping the handle would wake the stream.
        let (_, handle) = inserter.thread.join().unwrap();
        let mut before = 0;
        while polled.is_pending() {
            while desk.woken() == before {
                assert!(desk.clock.elapsed() < TICK * 8, "never woken");
                desk.clock.advance(TICK);
                let _ = desk.sweeper.sweep(|timer| timer.value.wake());
            }
            before = desk.woken();
            assert!(before < 16, "woken for nothing");
            polled = desk.poll();
        }
        assert_eq!((polled, desk.clock.elapsed()), (Poll::Ready(Some(7)), TICK));
        drop(handle);
        assert_eq!(desk.poll(), Poll::Ready(None));
    });
}

/// An insert that the close refuses, after it was counted briefly, does not delay the end of the
/// stream.
#[test]
fn refused_insert_against_the_close() {
    model(3, || {
        let mut desk = Desk::new();
        let inserter = Beside::run(&desk, |handle| handle.insert(7, TICK * 2).is_ok());
        desk.queue.close();
        let (before, over) = (desk.woken(), inserter.is_over());
        let polled = desk.poll();
        let (accepted, _handle) = inserter.thread.join().unwrap();
        let settled = desk.clear_refiling(polled, before);
        if !over {
            assert_eq!(settled.is_pending(), accepted, "ended if and only if nothing is left");
        }
    });
}

/// The stream is ended either by the close or by the thread that removes the last value
/// concurrently.
#[test]
fn remove_against_the_close() {
    model(3, || {
        let mut desk = Desk::new();
        let id = desk.queue.insert(7, TICK * 2).unwrap();
        let remover = Beside::run(&desk, move |handle| handle.cancel(id).is_some());
        desk.queue.close();
        let (before, over) = (desk.woken(), remover.is_over());
        let polled = desk.poll();
        let (removed, _handle) = remover.thread.join().unwrap();
        let settled = desk.clear_refiling(polled, before);
        assert!(removed && (over || settled == Poll::Ready(None)), "nothing is left");
    });
}

/// Runs an insert against a close and the poll that may end the stream. An accepted value comes out
/// before the end.
fn ends_with_no_value_left(mut desk: Desk) {
    let inserter = Beside::run(&desk, |handle| handle.insert(7, TICK * 2).is_ok());
    let closer = Beside::run(&desk, DelayQueueHandle::close);
    let polled = desk.poll();
    let (accepted, _handle) = inserter.thread.join().unwrap();
    drop(closer.thread.join().unwrap());
    assert!(!accepted || polled.is_pending(), "ended with a value left");
}

#[test]
fn insert_against_the_close_and_the_poll() {
    model(2, || ends_with_no_value_left(Desk::new()));
}

/// The wheel's insert passes no fence.
#[test]
fn insert_that_relies_on_a_reference_against_the_close_and_the_poll() {
    model(2, || {
        let desk = Desk::new();
        let id = desk.queue.insert(6, TICK * 2).unwrap();
        assert_eq!(desk.queue.cancel(id), Some(6));
        ends_with_no_value_left(desk);
    });
}
