//! Tests that a wheel with few timers takes little memory, so that there can be one for each
//! session of a server.

use crate::{alone, held};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tourbillon::future::{DelayQueue, Timer};
use tourbillon::{Builder, ManualClock, Sweeper, Wheel};

const QUEUES: u32 = 2000;

fn poll(queue: &mut DelayQueue<u32>) -> Poll<Option<u32>> {
    let expired = queue.poll_expired(&mut Context::from_waker(Waker::noop()));
    expired.map(|expired| expired.map(|expired| expired.value))
}

#[test]
fn a_wheel_with_one_timer_takes_at_most_6_kib() {
    let _alone = alone();
    let mut wheel = None;
    let bytes = held(|| {
        let (wheel, sweeper) = wheel.insert(Builder::new().shards(1).build::<u64>().unwrap());
        wheel.insert(7, Duration::from_secs(30)).unwrap();
        assert!(sweeper.next_deadline().is_some());
    });
    let inline = size_of::<(Wheel<u64>, Sweeper<u64>)>() as i64;
    assert!(bytes + inline <= 6 << 10, "{bytes} and {inline} bytes");
}

/// The first pages of large values are not zeroed by the insert that makes them.
#[test]
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(portable)))]
fn large_values_are_not_kept_in_memory_from_the_allocator() {
    let _alone = alone();
    let (wheel, _sweeper) = Builder::new().shards(1).build::<[u8; 1 << 16]>().unwrap();
    let bytes = held(|| {
        for _ in 0..20 {
            wheel.insert([7; 1 << 16], Duration::from_secs(30)).unwrap();
        }
    });
    assert!(bytes <= 1 << 20, "{bytes} bytes");
}

/// A thread costs a wheel nothing before it calls it, and then one state.
#[test]
#[allow(clippy::disallowed_methods, reason = "the test is about threads")]
fn a_thread_that_calls_a_wheel_costs_it_256_bytes() {
    let _alone = alone();
    let [(wheel, _sweeper), (other, _other_sweeper)] =
        [(); 2].map(|()| Builder::new().shards(1).build::<u64>().unwrap());
    let [id, other_id] =
        [&wheel, &other].map(|wheel| wheel.insert(7, Duration::from_secs(30)).unwrap());
    let bytes = std::thread::scope(|scope| {
        let calling = scope.spawn(|| {
            // crossbeam-epoch keeps a state for each thread, whatever the number of wheels.
            assert!(other.cancel(other_id).is_some());
            held(|| assert!(wheel.cancel(id).is_some()))
        });
        calling.join().unwrap()
    });
    assert!((128..=256).contains(&bytes), "{bytes} bytes");
}

/// Each queue takes at most 8 KiB, with its sleep in the wheel of the timer, and no mapping.
#[test]
fn a_queue_with_one_value_takes_at_most_8_kib() {
    let _alone = alone();
    let clock = ManualClock::new();
    let (wheel, mut sweeper) = Builder::new().shards(1).clock(clock.clone()).build().unwrap();
    let timer = Timer::new(wheel);
    let mut queues = Vec::with_capacity(QUEUES as usize);
    let before = mappings();
    let bytes = held(|| {
        for number in 0..QUEUES {
            let mut queue = DelayQueue::new(&timer, Builder::new()).unwrap();
            queue.insert(number, Duration::from_secs(30)).unwrap();
            assert!(poll(&mut queue).is_pending());
            queues.push(queue);
        }
    });
    let each = bytes / i64::from(QUEUES) + size_of::<DelayQueue<u32>>() as i64;
    assert!(each <= 8 << 10, "{each} bytes");
    assert!(mappings() < before + 50, "{before} mappings before, {} after", mappings());

    clock.advance(Duration::from_secs(31));
    let _ = sweeper.sweep(|timer| timer.value.wake());
    for (queue, number) in queues.iter_mut().zip(0..) {
        assert_eq!(poll(queue), Poll::Ready(Some(number)));
        assert_eq!(poll(queue), Poll::Ready(None));
    }
}

/// A queue with few values makes all the slots of its lower levels when it is in use for long.
#[test]
fn a_queue_in_use_takes_at_most_16_kib() {
    let _alone = alone();
    let clock = ManualClock::new();
    let (wheel, _sweeper) = Builder::new().shards(1).clock(clock.clone()).build().unwrap();
    let timer = Timer::new(wheel);
    let mut queue = None;
    let bytes = held(|| {
        let queue = queue.insert(DelayQueue::new(&timer, Builder::new()).unwrap());
        for number in 0..2000 {
            queue.insert(number, Duration::from_millis(1 + u64::from(number % 7) * 600)).unwrap();
            assert!(poll(queue).is_pending());
            clock.advance(Duration::from_millis(131));
            while poll(queue).is_ready() {}
        }
    });
    assert!(bytes <= 16 << 10, "{bytes} bytes");
}

/// The number of mappings of this process.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count())
}
