//! Several workers of one file in one process.

#![allow(clippy::disallowed_methods, reason = "workers have threads of their own")]

use crate::common::bench::{Bench, OneFile, SECOND, TempFile, attempts, quick, wait};
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::{Duration, Instant, SystemTime};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon_durable::{
    DurableTimers, Embedded, Event, Options, Outcome, StoreClock, StoreOptions, SystemClock,
};

/// A clock that counts its readings, one for each operation of the store.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicUsize>);

impl StoreClock for Counting {
    fn now(&self) -> SystemTime {
        self.0.fetch_add(1, SeqCst);
        SystemClock.now()
    }
}

#[test]
fn each_lease_is_asked_for_once() {
    const TIMERS: usize = 2000;
    let (file, clock) = (TempFile::new(), Counting::default());
    let store = Embedded::open_with(&file.0, StoreOptions::new().clock(clock.clone())).unwrap();
    let timer = Timer::spawn(Builder::new().driver()).unwrap();
    let timers = DurableTimers::new(store, &timer);
    let ids: Vec<String> = (0..TIMERS).map(|number| number.to_string()).collect();
    let all = ids.iter().map(|id| timers.insert(id, "", Duration::ZERO, Options::new()));
    wait(try_join_all(all)).unwrap();

    let before = clock.0.load(SeqCst);
    let (end, ends) = futures_channel::oneshot::channel::<()>();
    let (end, ends) = (Arc::new(Mutex::new(Some(end))), ends.shared());
    let left = Arc::new(AtomicUsize::new(TIMERS));
    let work = || {
        let (end, left) = (Arc::clone(&end), Arc::clone(&left));
        let worker = timers.worker().until(ends.clone().map(drop)).observe(move |event| {
            let Event::Attempt(event) = event else { return };
            assert_eq!(event.outcome, Outcome::Acknowledged);
            if left.fetch_sub(1, SeqCst) == 1 {
                drop(end.lock().unwrap().take());
            }
        });
        wait(worker.run(|_| async { Ok::<(), String>(()) }))
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            assert_eq!(worker.join().unwrap(), Ok(()));
        }
    });
    assert_eq!(wait(timers.len()), Ok(0));
    // A lease and its end for each timer, and a few pages.
    let asked = clock.0.load(SeqCst) - before;
    assert!((2 * TIMERS..5 * TIMERS / 2).contains(&asked), "{asked} for {TIMERS} timers");
}

/// A worker whose task is no longer polled, either before it has taken its first page or while it
/// waits for the next one.
#[test]
fn a_worker_that_is_not_polled_delays_no_other() {
    for polls in [1, 2, 100] {
        let bench = Bench::new(OneFile::new());
        let mut stalled = Box::pin(bench.timers().run(|_| async { Ok::<(), String>(()) }));
        let mut noop = Context::from_waker(Waker::noop());
        for _ in 0..polls {
            assert!(stalled.as_mut().poll(&mut noop).is_pending());
            std::thread::yield_now();
        }
        let running = bench.work_well();
        for (number, delay) in [0, 1, 30].into_iter().enumerate() {
            let id = number.to_string();
            wait(bench.timers().insert(&id, "", delay * SECOND, quick())).unwrap();
            bench.advance(delay * SECOND);
            assert_eq!(running.acknowledged(1), [id]);
        }
        assert_eq!(running.stop(), []);
        // It continues when it is polled again.
        wait(bench.timers().insert("last", "", Duration::ZERO, quick())).unwrap();
        while wait(bench.timers().len()).unwrap() > 0 {
            assert!(stalled.as_mut().poll(&mut noop).is_pending());
        }
    }
}

/// A worker that ends while more keys have fired than it can start.
#[test]
fn a_worker_that_is_dropped_leaves_its_keys_to_the_others() {
    const TIMERS: usize = 50;
    let bench = Bench::new(OneFile::new());
    let (send, begun) = channel();
    let first = bench.timers().worker().concurrency(10);
    let mut first = Box::pin(first.run(move |_| {
        send.send(()).unwrap();
        std::future::pending::<Result<(), String>>()
    }));
    let (send, events) = channel();
    let second = bench.timers().worker().observe(attempts(send));
    let mut second = Box::pin(second.run(|_| async { Ok::<(), String>(()) }));
    let mut noop = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut noop).is_pending());
    assert!(second.as_mut().poll(&mut noop).is_pending());

    let ids: Vec<String> = (0..TIMERS).map(|number| number.to_string()).collect();
    let all = ids.iter().map(|id| bench.timers().insert(id, "", SECOND, quick()));
    wait(try_join_all(all)).unwrap();
    bench.advance(SECOND);
    let mut handled = 0;
    while handled < 10 {
        assert!(first.as_mut().poll(&mut noop).is_pending());
        handled += begun.try_iter().count();
    }
    drop(first);
    let mut next = || {
        let asked = Instant::now();
        loop {
            // The limit keeps a broken build from hanging.
            assert!(asked.elapsed() < 60 * SECOND, "no attempt ends");
            assert!(second.as_mut().poll(&mut noop).is_pending());
            if let Ok(event) = events.try_recv() {
                return event.outcome;
            }
        }
    };
    for _ in 0..TIMERS - 10 {
        assert_eq!(next(), Outcome::Acknowledged);
    }
    // The leases of the others expire, and each timer is tried again.
    bench.advance(60 * SECOND);
    for _ in 0..10 {
        assert!(matches!(next(), Outcome::Retry { .. }));
    }
    bench.advance(4 * SECOND);
    for _ in 0..10 {
        assert_eq!(next(), Outcome::Acknowledged);
    }
    assert_eq!(wait(bench.timers().len()), Ok(0));
}
