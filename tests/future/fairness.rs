//! Futures of the crate let other tasks have a turn. They run on an executor of one thread beside a
//! task that only yields, in virtual time.

use crate::common::sandbox::{Sandbox, Task, waker};
use futures_core::Stream;
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon::future::{DelayQueue, TimeoutError};
use tourbillon::{Builder, Refusal};

const MS: Duration = Duration::from_millis(1);

/// The maximum number of results in a row that are ready.
const ROW: u32 = 64;

/// Runs a task to completion beside one that only yields. Returns how often the latter was polled.
/// Tasks are polled in the order of their wake-ups, and only if they were woken.
fn others_beside(work: impl Future<Output = ()>) -> u32 {
    let woken = Arc::new(Mutex::new(VecDeque::from(["work", "other"])));
    let wakers = ["work", "other"].map(|name| {
        let woken = Arc::clone(&woken);
        waker(move || woken.lock().unwrap().push_back(name))
    });
    let (mut work, mut others) = (pin!(work), 0);
    loop {
        let next = woken.lock().unwrap().pop_front();
        match next.expect("some task is woken") {
            "work" => {
                if work.as_mut().poll(&mut Context::from_waker(&wakers[0])).is_ready() {
                    return others;
                }
            }
            _ => {
                others += 1;
                wakers[1].wake_by_ref();
                assert!(others < 1_000_000, "the work waits for what nobody does");
            }
        }
    }
}

#[test]
fn an_interval_that_catches_up_lets_others_have_their_turn() {
    let mut sandbox = Sandbox::new();
    let mut interval = sandbox.timer.interval(MS).unwrap();
    sandbox.advance(MS * 20_000);
    let others = others_beside(async {
        for _ in 0..20_000 {
            interval.tick().await.unwrap();
        }
    });
    assert!(others >= 20_000 / ROW - 1, "{others} turns");
    assert!(others <= 20_000 / ROW + 1, "{others} turns cost more than they are worth");
}

#[test]
fn a_queue_of_which_much_is_due_lets_others_have_their_turn() {
    type Next = fn(&mut DelayQueue<u32>, &mut Context<'_>) -> Poll<bool>;
    let ways: [Next; 2] = [
        |queue, context| queue.poll_expired(context).map(|expired| expired.is_some()),
        |queue, context| Pin::new(queue).poll_next(context).map(|expired| expired.is_some()),
    ];
    for next in ways {
        let mut sandbox = Sandbox::new();
        let mut queue = DelayQueue::new(&sandbox.timer, Builder::new()).unwrap();
        for value in 0..10_000 {
            queue.insert(value, MS * (value % 7)).unwrap();
        }
        sandbox.advance(MS * 7);
        let mut values = 0;
        let others = others_beside(async {
            while poll_fn(|context| next(&mut queue, context)).await {
                values += 1;
            }
        });
        assert_eq!(values, 10_000);
        assert!(others >= 10_000 / ROW - 1, "{others} turns");
    }
}

/// Loops over refused sleeps, of a timer that was shut down and of one that is full.
#[test]
fn loops_over_what_is_refused_let_others_have_their_turn() {
    const ROUNDS: u32 = 1_000;
    let full = Sandbox::of(Builder::new().capacity(1));
    let (task, mut place) = (Task::new(), full.timer.sleep(MS));
    assert!(task.poll(&mut place).is_pending());
    let closed = Sandbox::new();
    closed.timer.shutdown();
    let refusals = [Refusal::AtCapacity { capacity: 1 }, Refusal::Closed];
    for (sandbox, refusal) in [&full, &closed].into_iter().zip(refusals) {
        let timer = &sandbox.timer;
        let sleeps = async {
            for _ in 0..ROUNDS {
                assert_eq!(timer.sleep(MS).await, Err(refusal));
            }
        };
        let resets = async {
            let mut sleep = timer.sleep(MS);
            for _ in 0..ROUNDS {
                sleep.reset_after(MS);
                assert_eq!((&mut sleep).await, Err(refusal));
            }
        };
        let timeouts = async {
            for _ in 0..ROUNDS {
                let answer = timer.timeout(MS, pending::<()>()).await;
                assert_eq!(answer, Err(TimeoutError::Refused(refusal)));
            }
        };
        let ticks = async {
            for _ in 0..ROUNDS {
                let mut interval = timer.interval_at(timer.now() + MS, MS).unwrap();
                assert_eq!(interval.tick().await, Err(refusal));
            }
        };
        assert!(others_beside(sleeps) >= ROUNDS, "sleeps: {refusal}");
        assert!(others_beside(resets) >= ROUNDS, "resets: {refusal}");
        assert!(others_beside(timeouts) >= ROUNDS, "timeouts: {refusal}");
        assert!(others_beside(ticks) >= ROUNDS, "ticks: {refusal}");
    }
}

#[test]
fn a_refused_sleep_takes_a_place_that_has_become_free_meanwhile() {
    let sandbox = Sandbox::of(Builder::new().capacity(1));
    let (task, mut place, mut sleep) =
        (Task::new(), sandbox.timer.sleep(MS), sandbox.timer.sleep(MS));
    assert!(task.poll(&mut place).is_pending());
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!((task.wakes(), sandbox.armed()), (1, 1), "it is to be polled again");
    drop(place);
    assert!(task.poll(&mut sleep).is_pending());
    assert_eq!((task.wakes(), sandbox.armed()), (0, 1));
}

/// Values that were pushed back leave references in their old slot. A poll visits no more of them
/// than a bounded sweep may, and wakes its task for the rest.
#[test]
fn a_poll_meets_a_bounded_number_of_names() {
    let mut sandbox = Sandbox::new();
    let (task, mut queue) = (Task::new(), DelayQueue::new(&sandbox.timer, Builder::new()).unwrap());
    let ids: Vec<_> = (0..20_000).map(|value| queue.insert(value, MS * 10).unwrap()).collect();
    assert!(queue.poll_expired(&mut task.context()).is_pending());
    for id in ids {
        assert_eq!(queue.reset(id, MS * 10_000), Ok(true));
    }
    sandbox.advance(MS * 10);
    task.wakes();
    let mut polls = 1;
    // The timer is not swept meanwhile, so only the poll can have woken the task.
    while queue.poll_expired(&mut task.context()).is_pending() && task.wakes() > 0 {
        polls += 1;
        assert!(polls < 100, "it comes to rest");
    }
    assert!(polls > 4, "{polls} polls");
    assert_eq!(queue.len(), 20_000);
    sandbox.advance(MS * 10_000);
    while queue.poll_expired(&mut task.context()).is_pending() {
        assert!(task.wakes() > 0, "it is due");
    }
}
