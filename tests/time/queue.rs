//! The queue against a plain list, and what tokio-util's tests leave out.

use super::{MS, paused};
use futures_core::Stream;
use proptest::prelude::*;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tourbillon::time::delay_queue::Key;
use tourbillon::time::{self, DelayQueue, Instant};

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

/// A task that polls a queue.
struct Task {
    woken: Arc<Woken>,
    waker: Waker,
}

impl Task {
    fn new() -> Self {
        let woken = Arc::new(Woken::default());
        Self { waker: Waker::from(Arc::clone(&woken)), woken }
    }

    fn poll<T>(&self, queue: &mut DelayQueue<T>) -> Poll<Option<T>> {
        self.woken.0.store(false, Relaxed);
        let polled = queue.poll_expired(&mut Context::from_waker(&self.waker));
        polled.map(|expired| expired.map(time::delay_queue::Expired::into_inner))
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(Relaxed)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert { after: u64 },
    Reset { which: usize, after: u64 },
    Remove { which: usize },
    Advance { by: u64 },
    Compact,
    Shrink,
    Clear,
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![0..5_u64, 0..100_u64, 0..100_000_u64];
    prop_oneof![
        6 => after.clone().prop_map(|after| Step::Insert { after }),
        4 => (any::<usize>(), after).prop_map(|(which, after)| Step::Reset { which, after }),
        3 => any::<usize>().prop_map(|which| Step::Remove { which }),
        4 => (0..200_u64).prop_map(|by| Step::Advance { by }),
        1 => Just(Step::Compact),
        1 => Just(Step::Shrink),
        1 => Just(Step::Clear),
    ]
}

/// A value of the list: its key, its number and the millisecond when it is due.
type Listed = (Key, usize, u64);

/// Takes steps on a queue and on a list. Keys of values that have gone stay in `keys`.
async fn take(steps: Vec<Step>) {
    let start = Instant::now();
    let (mut queue, task) = (DelayQueue::new(), Task::new());
    let (mut list, mut keys): (Vec<Listed>, Vec<Key>) = (Vec::new(), Vec::new());
    let (mut now, mut waits) = (0, false);
    for (number, step) in steps.into_iter().enumerate() {
        let first = list.iter().map(|&(_, _, due)| due).min();
        match step {
            Step::Insert { after } => {
                let key = queue.insert_at(number, start + MS * u32::try_from(now + after).unwrap());
                assert!(!keys.contains(&key), "no key is used again");
                list.push((key, number, now + after));
                keys.push(key);
            }
            Step::Reset { which, after } if !list.is_empty() => {
                let which = which % list.len();
                queue.reset(&list[which].0, Duration::from_millis(after));
                list[which].2 = now + after;
            }
            Step::Remove { which } if !keys.is_empty() => {
                let key = keys[which % keys.len()];
                let removed = queue.try_remove(&key).map(|expired| {
                    assert_eq!(expired.key(), key);
                    (expired.deadline(), expired.into_inner())
                });
                let place = list.iter().position(|(listed, ..)| *listed == key);
                let listed = place.map(|place| list.swap_remove(place));
                let listed =
                    listed.map(|(_, number, due)| (start + Duration::from_millis(due), number));
                assert_eq!(removed, listed);
            }
            Step::Advance { by } => {
                now += by;
                time::advance(Duration::from_millis(by)).await;
            }
            Step::Compact => {
                queue.compact();
                assert_eq!(queue.capacity(), list.len());
            }
            Step::Shrink => queue.shrink_to_fit(),
            Step::Clear => {
                queue.clear();
                list.clear();
            }
            Step::Reset { .. } | Step::Remove { .. } => {}
        }
        assert_eq!((queue.len(), queue.is_empty()), (list.len(), list.is_empty()));
        let next = list.iter().map(|&(_, _, due)| due).min();
        let peeked = queue.peek().map(|key| queue.deadline(&key));
        assert_eq!(peeked, next.map(|due| start + Duration::from_millis(due)));
        let due = next.is_some_and(|due| due <= now);
        let emptied = list.is_empty() && first.is_some();
        if waits && (due || emptied) {
            assert!(task.is_woken(), "a task that waits is woken");
        }
        waits = check_ready(&mut queue, &task, &mut list, now);
    }
}

/// Polls until nothing is ready. Returns `true` if the task waits then.
fn check_ready(
    queue: &mut DelayQueue<usize>,
    task: &Task,
    list: &mut Vec<Listed>,
    now: u64,
) -> bool {
    loop {
        let earliest = list.iter().map(|&(_, _, due)| due).min();
        match task.poll(queue) {
            Poll::Ready(Some(number)) => {
                let place = list.iter().position(|(_, listed, _)| *listed == number).unwrap();
                let (_, _, due) = list.swap_remove(place);
                assert!(due <= now && Some(due) == earliest, "in order, and not early");
            }
            Poll::Ready(None) => {
                assert!(list.is_empty());
                return false;
            }
            Poll::Pending => {
                assert!(earliest.unwrap() > now);
                return true;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn it_does_what_a_list_does(steps in proptest::collection::vec(step(), 1..200)) {
        paused(tokio::task::coop::unconstrained(take(steps)));
    }
}

#[test]
fn values_of_one_tick_come_in_the_order_of_their_inserts() {
    paused(async {
        let mut queue = DelayQueue::with_capacity(3);
        let first = queue.insert(1, MS);
        queue.insert(2, MS);
        queue.insert(3, MS);
        queue.reset(&first, MS);
        let mut values = Vec::new();
        let mut stream = Pin::new(&mut queue);
        while let Some(expired) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
            values.push(expired.into_inner());
        }
        assert_eq!(values, [2, 3, 1]);
    });
}

/// Connections that push back their timeouts with each packet, behind a value that is never taken.
#[test]
fn places_that_values_have_left_are_dropped() {
    let mut queue = DelayQueue::new();
    let first = queue.insert(0, MS);
    let keys: Vec<Key> = (0..10).map(|value| queue.insert(value, MS * 1000)).collect();
    let places = |queue: &DelayQueue<i32>| -> usize {
        let printed = format!("{queue:?}");
        let places = printed.split("places: ").nth(1).unwrap();
        places.split(',').next().unwrap().parse().unwrap()
    };
    for round in 0..100_000 {
        queue.reset(&keys[round % 10], MS * 1000);
        assert!(places(&queue) <= 2 * queue.len() + 32);
    }
    assert_eq!(queue.peek(), Some(first));
    for key in keys.into_iter().chain([first]) {
        assert_eq!(queue.remove(&key).key(), key);
    }
    assert_eq!((queue.len(), queue.peek(), places(&queue)), (0, None, 0));
}

#[test]
fn only_an_earlier_first_value_wakes_the_task() {
    paused(async {
        let (mut queue, task) = (DelayQueue::new(), Task::new());
        let key = queue.insert("first", MS * 100);
        assert!(task.poll(&mut queue).is_pending());
        queue.insert("later", MS * 200);
        queue.reset(&key, MS * 300);
        assert!(!task.is_woken());
        queue.reset(&key, MS * 50);
        assert!(task.is_woken());
        assert!(task.poll(&mut queue).is_pending());
        time::sleep(MS * 50).await;
        assert!(task.is_woken());
        assert_eq!(task.poll(&mut queue), Poll::Ready(Some("first")));
    });
}
