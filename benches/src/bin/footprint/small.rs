//! The cost of one wheel or queue of many: memory, and the time to build it.

use crate::resident;
use serde_json::{Value, json};
use std::task::{Context, Waker};
use std::time::Duration;
use tourbillon::future::{DelayQueue, Timer};
use tourbillon::{Builder, ManualClock, Sweeper, Wheel};
use tourbillon_benches::now;

const MANY: usize = 2000;

const DELAY: Duration = Duration::from_secs(30);

/// Wheels with one shard and one armed timer.
pub(crate) fn wheels() -> Value {
    let build = || Builder::new().shards(1).build::<u64>().expect("one shard is in range");
    let arm = |(wheel, _): &mut (Wheel<u64>, Sweeper<u64>)| {
        wheel.insert(7, DELAY).expect("the wheel is open");
    };
    cost(build, arm, Some((6144, 5000)))
}

/// Delay queues with one value, on one timer.
pub(crate) fn queues() -> Value {
    let (wheel, _sweeper) =
        Builder::new().clock(ManualClock::new()).build().expect("the defaults are in range");
    let timer = Timer::new(wheel);
    let build = || DelayQueue::new(&timer, Builder::new()).expect("the defaults are in range");
    let arm = |queue: &mut DelayQueue<u64>| {
        queue.insert(7, DELAY).expect("the queue is open");
        assert!(queue.poll_expired(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    cost(build, arm, Some((8192, 5000)))
}

/// Delay queues of tokio-util with one value.
pub(crate) fn tokio_queues() -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let _entered = runtime.as_ref().expect("a runtime of one thread").enter();
    let arm = |queue: &mut tokio_util::time::DelayQueue<u64>| {
        queue.insert(7, DELAY);
        assert!(queue.poll_expired(&mut Context::from_waker(Waker::noop())).is_pending());
    };
    cost(tokio_util::time::DelayQueue::new, arm, None)
}

/// Bytes of each of many, and the medians of the times to build and arm one. `at_most` bounds the
/// resident bytes and the nanoseconds to build one.
fn cost<Q>(
    mut build: impl FnMut() -> Q,
    mut arm: impl FnMut(&mut Q),
    at_most: Option<(usize, u64)>,
) -> Value {
    let mut all = Vec::with_capacity(MANY);
    let (mut built, mut armed) = (vec![Duration::ZERO; MANY], vec![Duration::ZERO; MANY]);
    let before = resident();
    let mut make = |number: usize| {
        let begun = now();
        let mut made = build();
        built[number] = begun.elapsed();
        let begun = now();
        arm(&mut made);
        armed[number] = begun.elapsed();
        all.push(made);
    };
    // The first one makes what all share.
    make(0);
    let heap = heap_of(|| make(1));
    (2..MANY).for_each(&mut make);
    let resident = (resident() - before) / MANY;
    let median = |times: &mut [Duration]| {
        times.sort_unstable();
        u64::try_from(times[MANY / 2].as_nanos()).unwrap_or(u64::MAX)
    };
    let mut row = json!({"heap": heap, "inline": size_of::<Q>(), "resident": resident,
                         "build_ns": median(&mut built), "arm_ns": median(&mut armed)});
    if let Some((bytes, build_ns)) = at_most {
        row["resident_at_most"] = bytes.into();
        row["build_ns_at_most"] = build_ns.into();
    }
    row
}

/// Bytes that are allocated after `run`, as the allocator counts them.
#[cfg(not(feature = "jemalloc"))]
fn heap_of(run: impl FnOnce()) -> Option<i64> {
    Some(allocation_counter::measure(run).bytes_current)
}

#[cfg(feature = "jemalloc")]
fn heap_of(run: impl FnOnce()) -> Option<i64> {
    run();
    None
}
