//! Delay queues, in virtual time.

#![allow(clippy::disallowed_methods, reason = "some of these tests are about threads")]

use crate::common::sandbox::{Sandbox, Task, waker};
use futures_core::Stream;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tourbillon::future::{DelayQueue, DelayQueueHandle, Timer};
use tourbillon::{BuildError, Builder, Clock, Refusal};

const MS: Duration = Duration::from_millis(1);
const END: Poll<Option<u32>> = Poll::Ready(None);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn some(value: u32) -> Poll<Option<u32>> {
    Poll::Ready(Some(value))
}

/// A queue in virtual time, and the task that polls it.
struct Desk {
    sandbox: Sandbox,
    queue: DelayQueue<u32>,
    task: Task,
}

impl Desk {
    fn new() -> Self {
        Self::of(Sandbox::new(), Builder::new().shards(2))
    }

    fn of(sandbox: Sandbox, builder: Builder) -> Self {
        let queue = DelayQueue::new(&sandbox.timer, builder).unwrap();
        Self { sandbox, queue, task: Task::new() }
    }

    fn poll(&mut self) -> Poll<Option<u32>> {
        let next = Pin::new(&mut self.queue).poll_next(&mut self.task.context());
        next.map(|expired| expired.map(|expired| expired.value))
    }

    /// Returns all values that are due, including those after the stream has yielded.
    fn come(&mut self) -> Vec<u32> {
        let mut values = Vec::new();
        self.task.wakes();
        loop {
            match self.poll() {
                Poll::Ready(Some(value)) => values.push(value),
                Poll::Pending if self.task.wakes() > 0 => {}
                _ => return values,
            }
        }
    }

    /// Lets time pass. Returns `true` if the task was woken.
    fn advance(&mut self, millis: u32) -> bool {
        self.sandbox.advance(MS * millis);
        self.task.wakes() > 0
    }
}

/// Runs the test over resolutions of the timer and of the queue, equal or not, and numbers of
/// shards.
fn with_desks(mut test: impl FnMut(Desk)) {
    let micros = [100, 250, 1000];
    for (timer, queue) in micros.iter().flat_map(|&timer| micros.map(|queue| (timer, queue))) {
        for shards in [1, 3] {
            let sandbox = Sandbox::of(Builder::new().resolution(Duration::from_micros(timer)));
            let builder = Builder::new().resolution(Duration::from_micros(queue));
            test(Desk::of(sandbox, builder.shards(shards)));
        }
    }
}

#[test]
fn an_empty_queue_ends_unless_there_is_a_handle() {
    let mut desk = Desk::new();
    assert_eq!((desk.poll(), desk.poll()), (END, END));
    let handle = desk.queue.handle();
    let other = handle.handle();
    assert!(desk.poll().is_pending());
    drop(handle);
    assert_eq!(desk.task.wakes(), 0);
    assert!(desk.poll().is_pending());
    thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!((desk.task.wakes(), desk.poll()), (1, END));
    // An end is not final, unless the queue was closed.
    desk.queue.insert(7, Duration::ZERO).unwrap();
    assert_eq!((desk.poll(), desk.poll()), (some(7), END));
}

#[test]
fn what_is_due_at_once_comes_at_the_first_poll() {
    with_desks(|mut desk| {
        let now = desk.sandbox.clock.start();
        desk.advance(1000);
        for (value, delay) in [(1, 1000), (2, 900), (3, 0)] {
            desk.queue.insert_at(value, now + MS * delay).unwrap();
        }
        desk.queue.insert(4, Duration::ZERO).unwrap();
        let mut come = desk.come();
        come.sort_unstable();
        assert_eq!((come, desk.poll()), (vec![1, 2, 3, 4], END));
        assert_eq!((desk.sandbox.inserted(), desk.task.wakes()), (1, 0), "its place alone");
    });
}

#[test]
fn a_value_comes_at_its_deadline_and_not_before() {
    with_desks(|mut desk| {
        for delay in [1, 2, 7, 64, 1000] {
            let id = desk.queue.insert(delay, MS * delay).unwrap();
            assert_eq!(desk.queue.deadline(id), Some(desk.sandbox.clock.now() + MS * delay));
            assert!(desk.poll().is_pending());
            desk.sandbox.advance(MS * delay - Duration::from_nanos(1));
            assert!(desk.poll().is_pending(), "early");
            desk.task.wakes();
            desk.sandbox.advance(Duration::from_nanos(1));
            assert_eq!((desk.task.wakes(), desk.poll()), (1, some(delay)));
            assert_eq!((desk.queue.deadline(id), desk.poll()), (None, END));
        }
    });
}

#[test]
fn values_come_in_the_order_of_their_ticks_each_in_its_own() {
    with_desks(|mut desk| {
        let mut due: Vec<u32> = (0..500).map(|which| which * 7919 % 211 + 1).collect();
        let handle = desk.queue.handle();
        for (which, &delay) in (0..).zip(&due) {
            // Half of the values are inserted while the stream waits.
            assert!(which < 250 || desk.poll().is_pending());
            handle.insert(delay, MS * delay).unwrap();
        }
        due.sort_unstable();
        let mut come = Vec::new();
        for now in 1..=211 {
            desk.advance(1);
            let next = desk.come();
            assert!(next.iter().all(|&value| value == now));
            come.extend(next);
        }
        assert_eq!(come, due);
        // All values at once, after a jump of time, in order.
        for &delay in &due {
            handle.insert(delay, MS * delay).unwrap();
        }
        drop(handle);
        desk.advance(500);
        assert_eq!((desk.come(), desk.poll()), (due, END));
    });
}

#[test]
fn an_earlier_insert_wakes_the_stream_that_waits_and_a_later_one_does_not() {
    with_desks(|mut desk| {
        let handle = desk.queue.handle();
        let insert = |value, delay| handle.insert(value, MS * delay).map(drop).unwrap();
        assert!(desk.poll().is_pending());
        insert(1, 10_000);
        assert_eq!(desk.task.wakes(), 1, "it waited for nothing");
        assert!(desk.poll().is_pending());
        insert(2, 20_000);
        assert_eq!(desk.task.wakes(), 0);
        thread::scope(|scope| scope.spawn(|| insert(3, 600)).join().unwrap());
        assert_eq!(desk.task.wakes(), 1);
        assert!(desk.poll().is_pending());
        desk.sandbox.advance(MS * 599);
        assert!(desk.poll().is_pending());
        desk.task.wakes();
        assert!(desk.advance(1));
        assert_eq!(desk.come(), [3]);
        insert(4, 0);
        assert!(desk.task.wakes() > 0, "due at once");
        assert_eq!(desk.come(), [4]);
        desk.advance(9_400);
        assert_eq!(desk.come(), [1]);
        desk.advance(10_000);
        assert_eq!(desk.come(), [2]);
    });
}

#[test]
fn inserts_between_two_values_of_one_tick_change_nothing() {
    let mut desk = Desk::new();
    for value in 1..=3 {
        desk.queue.insert(value, MS * 100).unwrap();
    }
    assert!(desk.poll().is_pending());
    assert!(desk.advance(100));
    let mut come = Vec::new();
    for _ in 0..3 {
        let Poll::Ready(Some(value)) = desk.poll() else { panic!("they are due") };
        come.push(value);
        desk.queue.insert(9, MS * 400).unwrap();
    }
    come.sort_unstable();
    assert_eq!(come, [1, 2, 3]);
    assert!(desk.poll().is_pending());
    desk.advance(400);
    assert_eq!(desk.come(), [9, 9, 9]);
}

#[test]
fn a_value_is_removed_once_and_only_while_it_is_there() {
    with_desks(|mut desk| {
        let now = desk.sandbox.clock.now();
        let [armed, due, comes] =
            [500, 64, 64].map(|delay| desk.queue.insert(delay, MS * delay).unwrap());
        assert!(desk.poll().is_pending());
        let removed = desk.queue.cancel_with_deadline(armed).unwrap();
        assert_eq!((removed.value, removed.id), (500, armed));
        assert_eq!(removed.deadline, now + MS * 500);
        assert!(desk.queue.cancel(armed).is_none());
        // Of two values that are due one has come out, and the other can still be cancelled.
        desk.advance(80);
        let expired = Pin::new(&mut desk.queue).poll_next(&mut desk.task.context());
        let Poll::Ready(Some(expired)) = expired else { panic!("two are due") };
        let left = if expired.id == due { comes } else { due };
        assert!(desk.queue.cancel(expired.id).is_none());
        assert_eq!(desk.queue.cancel(left), Some(64));
        assert!(desk.queue.cancel(left).is_none());
        // The next value has the entry of one of those, and none of their ids.
        let next = desk.queue.insert(7, MS).unwrap();
        for stale in [armed, due, comes] {
            assert!(desk.queue.cancel(stale).is_none());
            assert_eq!(desk.queue.reset(stale, MS * 900), Ok(false));
            assert_eq!(desk.queue.deadline(stale), None);
        }
        assert!(desk.queue.deadline(next).is_some());
        desk.advance(1);
        assert_eq!((desk.come(), desk.poll()), (vec![7], END));
    });
}

#[test]
fn a_peek_shows_what_comes_next_and_leaves_it() {
    with_desks(|mut desk| {
        assert_eq!(desk.queue.peek(), None);
        let now = desk.sandbox.clock.now();
        let [later, next] = [500, 64].map(|delay| desk.queue.insert(delay, MS * delay).unwrap());
        assert_eq!(desk.queue.peek(), Some(now + MS * 64));
        assert!(desk.poll().is_pending());
        desk.queue.reset(later, MS * 5).unwrap();
        assert_eq!(desk.queue.peek(), Some(now + MS * 5));
        desk.queue.cancel(later);
        desk.advance(80);
        assert_eq!(desk.queue.peek(), desk.queue.deadline(next), "due, and still there");
        assert_eq!((desk.come(), desk.queue.peek()), (vec![64], None));
    });
}

#[test]
fn resets_earlier_and_later_are_obeyed_and_the_last_one_counts() {
    with_desks(|mut desk| {
        let start = desk.sandbox.clock.start();
        let one = desk.queue.insert_at(1, start + MS * 200).unwrap();
        let two = desk.queue.insert_at(2, start + MS * 250).unwrap();
        assert!(desk.poll().is_pending());
        for (id, at) in [(one, 300), (two, 350), (one, 400)] {
            assert_eq!(desk.queue.reset_at(id, start + MS * at), Ok(true));
            assert_eq!(desk.queue.deadline(id), Some(start + MS * at));
        }
        desk.advance(349);
        assert!(desk.poll().is_pending());
        desk.task.wakes();
        assert!(desk.advance(1));
        assert_eq!(desk.come(), [2]);
        // Moved earlier while the stream waits: it is woken for that, and again at the deadline.
        assert_eq!(desk.queue.reset_at(one, start + MS * 370), Ok(true));
        assert_eq!(desk.task.wakes(), 1);
        assert!(desk.poll().is_pending());
        desk.sandbox.advance(MS * 19);
        assert!(desk.poll().is_pending());
        assert!(desk.advance(1));
        assert_eq!((desk.come(), desk.poll()), (vec![1], END));
        assert_eq!(desk.queue.reset(one, MS), Ok(false), "it has come out");
    });
}

#[test]
fn a_reset_of_the_first_to_later_lets_the_second_come_first() {
    let mut desk = Desk::new();
    let one = desk.queue.insert(1, MS * 200).unwrap();
    desk.queue.insert(2, MS * 250).unwrap();
    assert!(desk.poll().is_pending());
    assert_eq!(desk.queue.reset(one, MS * 300), Ok(true));
    desk.advance(250);
    assert_eq!(desk.come(), [2]);
    desk.advance(49);
    assert!(desk.poll().is_pending());
    assert!(desk.advance(1));
    assert_eq!(desk.come(), [1]);
}

#[test]
fn a_reset_to_the_past_comes_at_once() {
    let mut desk = Desk::new();
    let id = desk.queue.insert(1, MS * 200).unwrap();
    desk.advance(100);
    assert!(desk.poll().is_pending());
    assert_eq!(desk.queue.reset_at(id, desk.sandbox.clock.start() + MS * 50), Ok(true));
    assert_eq!((desk.task.wakes(), desk.poll(), desk.poll()), (1, some(1), END));
}

#[test]
fn what_has_expired_and_not_come_out_can_be_put_off() {
    with_desks(|mut desk| {
        desk.advance(1000);
        let start = desk.sandbox.clock.now();
        // Inserted as expired.
        let id = desk.queue.insert_at(1, start - MS * 100).unwrap();
        assert_eq!(desk.queue.reset_at(id, start + MS * 100), Ok(true));
        assert_eq!(desk.queue.reset_at(id, start + MS * 50), Ok(true));
        assert!(desk.poll().is_pending());
        desk.advance(49);
        assert!(desk.poll().is_pending());
        desk.advance(1);
        // The deadline has passed, and the stream was not polled.
        assert_eq!(desk.queue.reset(id, MS * 10), Ok(true));
        assert!(desk.poll().is_pending());
        // Due with others, one of which has come out.
        let others = [2, 3].map(|value| desk.queue.insert(value, MS * 10).unwrap());
        desk.advance(10);
        let Poll::Ready(Some(first)) = desk.poll() else { panic!("three are due") };
        for id in [id, others[0], others[1]] {
            let is_left = desk.queue.deadline(id).is_some();
            assert_eq!(desk.queue.reset(id, MS * 5), Ok(is_left));
        }
        assert!(desk.poll().is_pending());
        desk.advance(5);
        let mut come = desk.come();
        come.push(first);
        come.sort_unstable();
        assert_eq!((come, desk.poll()), (vec![1, 2, 3], END));
    });
}

#[test]
fn the_end_by_a_removal_wakes_the_stream() {
    let ends: [fn(&DelayQueueHandle<u32>, tourbillon::TimerId); 3] = [
        |queue, id| assert!(queue.cancel(id).is_some()),
        |queue, _| queue.clear(),
        |queue, _| assert_eq!(queue.drain().len(), 1),
    ];
    for end in ends {
        // Alone: the queue itself is used, for example behind a lock.
        let mut desk = Desk::new();
        let id = desk.queue.insert(1, MS * 1000).unwrap();
        assert!(desk.poll().is_pending());
        assert_eq!(desk.task.wakes(), 0);
        end(&desk.queue, id);
        assert_eq!((desk.task.wakes(), desk.poll()), (1, END));
        // Closed, by a handle.
        let mut desk = Desk::new();
        let handle = desk.queue.handle();
        let id = handle.insert(1, MS * 1000).unwrap();
        handle.close();
        assert!(desk.poll().is_pending());
        desk.task.wakes();
        end(&handle, id);
        assert_eq!((desk.task.wakes(), desk.poll()), (1, END));
        // With a handle that could insert more values, there is no end and no wake-up.
        let mut desk = Desk::new();
        let handle = desk.queue.handle();
        let id = handle.insert(1, MS * 1000).unwrap();
        assert!(desk.poll().is_pending());
        end(&handle, id);
        assert!(desk.task.wakes() == 0 && desk.poll().is_pending());
    }
}

/// A queue that is shared without a handle. The removal of the last value wakes the stream, and no
/// other removal does.
#[test]
fn the_last_of_several_removals_wakes_the_stream() {
    for threads in [1, 4] {
        let mut desk = Desk::new();
        let insert = |desk: &Desk| desk.queue.insert(1, MS * 1000).unwrap();
        // Removed before the stream waits.
        let early = insert(&desk);
        assert!(desk.queue.cancel(early).is_some());
        let mut ids: Vec<_> = (0..100).map(|_| insert(&desk)).collect();
        assert!(desk.poll().is_pending());
        assert!(desk.queue.cancel(ids.remove(0)).is_some());
        assert!(desk.queue.cancel(early).is_none(), "it counts as no removal");
        assert!(desk.poll().is_pending());
        ids.push(insert(&desk));
        assert!(desk.poll().is_pending());
        assert_eq!(desk.task.wakes(), 0, "there is more");
        let queue: &DelayQueueHandle<u32> = &desk.queue;
        thread::scope(|scope| {
            for part in ids.chunks(ids.len() / threads) {
                scope
                    .spawn(move || part.iter().for_each(|&id| assert!(queue.cancel(id).is_some())));
            }
        });
        assert_eq!((desk.task.wakes(), desk.poll()), (1, END), "{threads} threads");
    }
}

#[test]
fn the_last_removal_after_the_last_handle_has_gone_wakes_the_stream() {
    let mut desk = Desk::new();
    let ids = [1, 2].map(|value| desk.queue.insert(value, MS * 1000).unwrap());
    assert!(desk.poll().is_pending());
    let handle = desk.queue.handle();
    assert!(desk.poll().is_pending());
    assert!(handle.cancel(ids[0]).is_some());
    drop(handle);
    assert_eq!(desk.task.wakes(), 1, "it counts anew");
    assert!(desk.poll().is_pending());
    assert!(desk.queue.cancel(ids[1]).is_some());
    assert_eq!((desk.task.wakes(), desk.poll()), (1, END));
}

/// Values that are not `Send`. No operation of such a queue can be called, but a type may contain
/// it.
#[test]
fn a_type_may_hold_a_queue_of_any_values() {
    struct Holder<T>(Option<DelayQueue<T>>, Option<DelayQueueHandle<T>>);
    let none = Holder::<std::rc::Rc<()>>(None, None);
    assert!(none.0.is_none() && none.1.is_none());
}

#[test]
fn a_queue_that_is_closed_takes_no_more_and_ends_with_its_last() {
    let mut desk = Desk::new();
    let handle = desk.queue.handle();
    assert!(desk.poll().is_pending());
    handle.insert(1, MS * 10).unwrap();
    assert!(desk.poll().is_pending());
    desk.task.wakes();
    desk.queue.close();
    let refused = handle.insert(2, MS).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Closed, 2));
    assert!(desk.poll().is_pending());
    assert!(desk.advance(10));
    assert_eq!((desk.poll(), desk.poll()), (some(1), END));
    let mut empty = Desk::new();
    let handle = empty.queue.handle();
    assert!(empty.poll().is_pending());
    handle.close();
    assert_eq!((empty.task.wakes(), empty.poll()), (1, END));
}

#[test]
fn counts_tell_what_is_in_it_and_a_drain_gives_it_back() {
    let mut desk = Desk::new();
    let handle = desk.queue.handle();
    assert!(desk.queue.is_empty() && handle.is_empty());
    for value in 0..1000 {
        handle.insert(value, MS * (value % 10 + 1)).unwrap();
    }
    assert_eq!((desk.queue.len(), handle.len()), (1000, 1000));
    desk.advance(4);
    assert_eq!((desk.come().len(), handle.len()), (400, 600));
    let mut drained: Vec<u32> = desk.queue.drain().into_iter().map(|armed| armed.value).collect();
    drained.sort_unstable();
    assert_eq!(drained, (0..1000).filter(|value| value % 10 > 3).collect::<Vec<_>>());
    assert!(handle.is_empty() && desk.poll().is_pending());
    handle.insert(1, MS).unwrap();
    handle.clear();
    assert_eq!((desk.queue.len(), desk.queue.metrics().armed), (0, 0));
    assert!(format!("{:?} {handle:?}", desk.queue).contains("DelayQueueHandle { len: 0"));
}

#[test]
fn a_full_queue_gives_the_value_back_and_a_delay_beyond_the_range_too() {
    let mut desk = Desk::of(Sandbox::new(), Builder::new().capacity(1));
    let refused = desk.queue.insert(2, YEAR * 5).unwrap_err();
    assert!(matches!((refused.reason, refused.value), (Refusal::BeyondRange(_), 2)));
    let id = desk.queue.insert(1, MS).unwrap();
    let refused = desk.queue.insert(2, MS).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::AtCapacity { capacity: 1 }, 2));
    assert!(desk.queue.reset(id, YEAR * 5).is_err());
    desk.advance(1);
    assert_eq!(desk.come(), [1], "it has kept its deadline");
    assert!(desk.queue.insert(2, MS).is_ok());
}

#[test]
fn dropping_the_queue_drops_each_value_once_though_handles_live_on() {
    let sandbox = Sandbox::new();
    let queue = DelayQueue::new(&sandbox.timer, Builder::new()).unwrap();
    let (handle, value, task) = (queue.handle(), Arc::new(()), Task::new());
    for millis in 0..100 {
        handle.insert(Arc::clone(&value), MS * millis).unwrap();
    }
    let mut queue = queue;
    assert!(queue.poll_expired(&mut task.context()).is_ready());
    assert_eq!(Arc::strong_count(&value), 100);
    while queue.poll_expired(&mut task.context()).is_ready() {}
    assert_eq!((sandbox.armed(), task.held() > 0), (1, true));
    drop(queue);
    assert_eq!((Arc::strong_count(&value), handle.len()), (1, 0));
    assert_eq!((sandbox.armed(), task.held(), task.wakes() > 1), (0, 0, false));
    let refused = handle.insert(Arc::clone(&value), MS).unwrap_err();
    assert_eq!(refused.reason, Refusal::Closed);
}

#[test]
fn the_end_of_the_timer_ends_the_stream_and_leaves_the_rest_to_be_drained() {
    let mut desk = Desk::new();
    let handle = desk.queue.handle();
    for value in [1, 2, 30] {
        handle.insert(value, MS * value).unwrap();
    }
    assert!(desk.poll().is_pending());
    desk.sandbox.clock.advance(MS * 2);
    desk.sandbox.timer.shutdown();
    assert!(desk.task.wakes() > 0);
    assert_eq!(desk.come(), [1, 2], "what was due comes first");
    assert_eq!((desk.poll(), desk.poll()), (END, END));
    let refused = handle.insert(4, MS).unwrap_err();
    assert_eq!((refused.reason, refused.value), (Refusal::Closed, 4));
    let left: Vec<u32> = desk.queue.drain().into_iter().map(|armed| armed.value).collect();
    assert_eq!(left, [30]);
}

#[test]
fn a_timer_that_is_full_or_was_shut_down_refuses_a_queue() {
    let sandbox = Sandbox::of(Builder::new().capacity(1));
    let refused = |timer: &Timer| match DelayQueue::<u32>::new(timer, Builder::new()) {
        Err(BuildError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let queue = DelayQueue::<u32>::new(&sandbox.timer, Builder::new()).unwrap();
    assert_eq!(refused(&sandbox.timer), Refusal::AtCapacity { capacity: 1 });
    let (task, mut sleep) = (Task::new(), sandbox.timer.sleep(MS));
    assert!(matches!(task.refused(&mut sleep), Poll::Ready(Err(Refusal::AtCapacity { .. }))));
    drop(queue);
    let queue = DelayQueue::<u32>::new(&sandbox.timer, Builder::new()).unwrap();
    drop(queue);
    sandbox.timer.shutdown();
    assert_eq!(refused(&sandbox.timer), Refusal::Closed);
}

/// Another sleep takes the place of the queue's sleep between its end and the next poll. The queue
/// waits all the same, and leaves no more room than there was.
#[test]
fn a_queue_whose_place_was_taken_waits_beyond_the_capacity() {
    let mut desk = Desk::of(Sandbox::of(Builder::new().capacity(1).shards(1)), Builder::new());
    let _handle = desk.queue.handle();
    let timer = desk.sandbox.timer.share();
    let (other, mut first) = (Task::new(), timer.sleep(MS * 50));
    let refused = || {
        let (task, mut sleep) = (Task::new(), timer.sleep(MS));
        assert!(matches!(task.refused(&mut sleep), Poll::Ready(Err(Refusal::AtCapacity { .. }))));
    };
    refused();
    desk.queue.insert(1, MS * 10).unwrap();
    desk.queue.insert(2, MS * 20).unwrap();
    assert!(desk.poll().is_pending());
    refused();
    assert!(desk.advance(10));
    assert!(other.poll(&mut first).is_pending(), "it takes the place");
    assert_eq!(desk.poll(), some(1));
    for _ in 0..3 {
        assert!(desk.poll().is_pending());
        assert_eq!((desk.task.wakes(), desk.sandbox.armed()), (0, 2));
        refused();
    }
    // A different task polls.
    desk.task = Task::new();
    assert!(desk.poll().is_pending());
    assert_eq!((desk.task.wakes(), desk.sandbox.armed()), (0, 2));
    assert!(desk.advance(10));
    assert_eq!(desk.poll(), some(2));
    assert!(desk.poll().is_pending());
    assert_eq!(desk.sandbox.armed(), 2);
    drop(first);
    refused();
    drop(desk.queue);
    let mut second = timer.sleep(MS);
    assert!(other.poll(&mut second).is_pending());
    refused();
}

#[test]
fn an_empty_queue_whose_timer_was_shut_down_ends() {
    let mut desk = Desk::new();
    let _handle = desk.queue.handle();
    assert!(desk.poll().is_pending());
    desk.sandbox.timer.shutdown();
    assert_eq!((desk.task.wakes(), desk.poll()), (1, END));
}

/// The range of a wheel's deadlines moves with its sweeps.
#[test]
fn a_queue_that_was_empty_for_long_takes_values() {
    let builder = Builder::new().resolution(Duration::from_micros(1));
    let mut desk = Desk::of(Sandbox::new(), builder);
    let handle = desk.queue.handle();
    assert!(desk.poll().is_pending());
    for _ in 0..100 {
        if desk.advance(3_600_000) {
            assert!(desk.poll().is_pending());
        }
    }
    handle.insert(1, MS).unwrap();
    assert!(desk.task.wakes() > 0 && desk.poll().is_pending());
    assert!(desk.advance(2));
    assert_eq!(desk.poll(), some(1));
}

/// A panic of the waiting waker keeps no value alive.
#[test]
fn a_queue_that_is_dropped_wakes_nobody() {
    let mut desk = Desk::new();
    let handle = desk.queue.handle();
    handle.insert(1, MS * 5).unwrap();
    let panics = waker(|| panic!("a waker"));
    assert!(desk.queue.poll_expired(&mut Context::from_waker(&panics)).is_pending());
    drop(desk.queue);
    assert!(handle.is_empty());
}

/// Counts its drop, and panics.
struct Panics(Arc<AtomicUsize>);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
        resume_unwind(Box::new("a drop that panics"));
    }
}

/// The caller gets one of the panics, because two at once would end the process.
#[test]
fn values_whose_drops_panic_are_all_dropped_by_a_clear_and_with_the_queue() {
    let (sandbox, drops) = (Sandbox::new(), Arc::new(AtomicUsize::new(0)));
    let queue = DelayQueue::new(&sandbox.timer, Builder::new()).unwrap();
    let insert = || queue.insert(Panics(Arc::clone(&drops)), YEAR).unwrap();
    let _ids = [(); 3].map(|()| insert());
    assert!(catch_unwind(AssertUnwindSafe(|| queue.clear())).is_err());
    assert_eq!((drops.load(Relaxed), queue.len()), (3, 0));
    let _ids = [(); 3].map(|()| insert());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(queue))).is_err());
    assert_eq!(drops.load(Relaxed), 6);
}

#[test]
fn another_task_may_take_over_and_the_last_one_is_woken() {
    let mut desk = Desk::new();
    let other = Task::new();
    let handle = desk.queue.handle();
    handle.insert(1, MS * 10).unwrap();
    assert!(desk.poll().is_pending());
    assert!(desk.queue.poll_expired(&mut other.context()).is_pending());
    desk.sandbox.advance(MS * 10);
    assert_eq!((desk.task.wakes(), other.wakes()), (0, 1));
    assert_eq!(desk.come(), [1]);
    assert!(desk.queue.poll_expired(&mut other.context()).is_pending());
    handle.insert(2, Duration::ZERO).unwrap();
    assert_eq!((desk.task.wakes(), other.wakes()), (0, 1));
}

#[test]
fn the_waker_of_the_stream_may_use_the_queue() {
    let mut desk = Desk::new();
    let handle = desk.queue.handle();
    let own = Mutex::new((desk.queue.handle(), 0));
    let busy = waker(move || {
        let Ok(mut own) = own.try_lock() else { return };
        own.1 += 1;
        let id = own.0.insert(100, Duration::ZERO).unwrap();
        assert_eq!(own.0.reset(id, MS * 5), Ok(true));
        assert!(own.0.cancel(id).is_some());
        let _ = own.0.insert(own.1, Duration::ZERO).unwrap();
    });
    let context = &mut Context::from_waker(&busy);
    for round in 1..=3 {
        assert!(desk.queue.poll_expired(context).is_pending());
        handle.insert(50, MS).unwrap();
        assert_eq!(desk.come(), [round], "woken for an earlier insert, it inserted");
        assert!(desk.queue.poll_expired(context).is_pending());
        assert_eq!(handle.drain().len(), 1);
        assert!(desk.poll().is_pending());
    }
}

#[test]
fn far_deadlines_are_met_also_by_a_timer_of_a_short_range() {
    // Microseconds reach 38 hours.
    let sandbox = Sandbox::of(Builder::new().resolution(Duration::from_micros(1)));
    let mut desk = Desk::of(sandbox, Builder::new());
    let delay = Duration::from_secs(10 * 86_400);
    desk.queue.insert(1, delay).unwrap();
    while desk.poll().is_pending() {
        assert!(desk.sandbox.clock.elapsed() < delay);
        let woken = desk.task.held();
        while desk.task.held() == woken {
            desk.sandbox.leap();
        }
    }
    assert_eq!(desk.sandbox.clock.elapsed(), delay);
}

#[test]
fn a_queue_outlives_the_range_of_its_wheel() {
    let mut desk = Desk::new();
    for value in 0..8 {
        desk.sandbox.advance(Duration::from_millis(1 << 35));
        desk.queue.insert(value, Duration::ZERO).unwrap();
        assert_eq!(desk.come(), [value]);
    }
    let handle = desk.queue.handle();
    handle.insert(8, MS).unwrap();
    assert!(desk.poll().is_pending());
    assert!(desk.advance(1));
    assert_eq!(desk.come(), [8]);
}

#[test]
fn after_many_removals_the_stream_clears_up_and_comes_to_rest() {
    let mut desk = Desk::of(Sandbox::new(), Builder::new().shards(1));
    let handle = desk.queue.handle();
    let ids: Vec<_> =
        (0..50_000).map(|value| handle.insert(value, MS * 10_000 + MS * value).unwrap()).collect();
    assert!(desk.poll().is_pending());
    ids.into_iter().for_each(|id| assert!(handle.cancel(id).is_some()));
    let (mut polls, before) = (0, handle.metrics().sweeps);
    // In slices, with a wake-up for each.
    while desk.advance(0) {
        assert!(desk.poll().is_pending());
        polls += 1;
    }
    let sweeps = handle.metrics().sweeps;
    assert!(polls < 250 && sweeps == before + polls, "{polls} polls, {sweeps} sweeps");
    assert_eq!(handle.metrics().stale_references, 0, "by the polls that it was woken for");
    for _ in 0..100 {
        desk.advance(1000);
        assert!(desk.poll().is_pending());
    }
    assert!(handle.metrics().sweeps < sweeps + 200);
    handle.insert(7, MS).unwrap();
    assert!(desk.poll().is_pending());
    desk.advance(1);
    assert_eq!(desk.come(), [7]);
}

#[test]
fn queues_of_one_timer_do_not_disturb_each_other() {
    let sandbox = Sandbox::new();
    let timer: Timer = sandbox.timer.clone();
    let mut first = Desk::of(sandbox, Builder::new());
    let mut second = DelayQueue::new(&timer, Builder::new()).unwrap();
    let task = Task::new();
    first.queue.insert(1, MS * 5).unwrap();
    second.insert("second", MS * 5).unwrap();
    assert!(first.poll().is_pending());
    assert!(second.poll_expired(&mut task.context()).is_pending());
    assert!(first.advance(5));
    assert_eq!((first.poll(), task.wakes()), (some(1), 1));
    drop(first.queue);
    let Poll::Ready(Some(expired)) = second.poll_expired(&mut task.context()) else {
        panic!("it is due")
    };
    assert_eq!(expired.value, "second");
}
