//! The same sleeps, timeouts, intervals and queues on several runtimes, and on none.
//!
//! Each test runs under tokio with many threads and with one, under smol, by pollster alone, and by
//! an executor of a few lines. None of them gives the timer anything but wakers.

#![allow(clippy::disallowed_methods, reason = "the runtimes are about threads")]

use smol::stream::StreamExt;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::future::{DelayQueue, Interval, TimeoutError, Timer};
use tourbillon::{Builder, Refusal};

const MS: Duration = Duration::from_millis(1);

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs all futures to their end, concurrently.
type Runtime = fn(Vec<Work>);

const RUNTIMES: [(&str, Runtime); 5] = [
    ("tokio, many threads", |all| {
        on_tokio(tokio::runtime::Builder::new_multi_thread().worker_threads(3), all);
    }),
    ("tokio, one thread", |all| {
        on_tokio(&mut tokio::runtime::Builder::new_current_thread(), all);
    }),
    ("smol", |all| {
        let tasks: Vec<_> = all.into_iter().map(smol::spawn).collect();
        smol::block_on(async {
            for task in tasks {
                task.await;
            }
        });
    }),
    ("pollster", |all| {
        thread::scope(|scope| {
            for future in all {
                scope.spawn(|| pollster::block_on(future));
            }
        });
    }),
    ("by hand", by_hand),
];

/// Runs them on a tokio runtime whose timer and I/O are disabled.
fn on_tokio(runtime: &mut tokio::runtime::Builder, all: Vec<Work>) {
    let runtime = runtime.build().unwrap();
    let tasks: Vec<_> = all.into_iter().map(|future| runtime.spawn(future)).collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

/// Runs them on one thread, with a channel of woken tasks.
fn by_hand(all: Vec<Work>) {
    struct Woken(usize, Mutex<mpsc::Sender<usize>>);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            let _ = self.1.lock().unwrap().send(self.0);
        }
    }
    let (wake, woken) = mpsc::channel();
    let waker = |task| Waker::from(Arc::new(Woken(task, Mutex::new(wake.clone()))));
    let mut tasks: Vec<_> =
        all.into_iter().enumerate().map(|(task, future)| Some((future, waker(task)))).collect();
    let mut turns: VecDeque<usize> = (0..tasks.len()).collect();
    while tasks.iter().any(Option::is_some) {
        // The limit is for a broken build, which would hang.
        let next = || woken.recv_timeout(Duration::from_secs(60)).expect("no wake-up is lost");
        let turn = turns.pop_front().unwrap_or_else(next);
        let Some((future, waker)) = &mut tasks[turn] else { continue };
        if future.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            tasks[turn] = None;
        }
    }
}

fn timer() -> Timer {
    Timer::spawn(Builder::new().driver()).unwrap()
}

/// Runs `count` copies of a future on each runtime, each with a timer, and checks the timer
/// afterwards.
fn on_all<F: Future<Output = ()> + Send + 'static>(count: usize, future: impl Fn(Timer) -> F) {
    for (name, runtime) in RUNTIMES {
        let timer = timer();
        let all = (0..count).map(|_| Box::pin(future(timer.clone())) as Work);
        runtime(all.collect());
        assert_eq!(timer.wheel().len(), 0, "on {name}");
        timer.shutdown();
        timer.driver().unwrap().wait().unwrap();
        assert_eq!(timer.driver().unwrap().metrics().handler_panics, 0, "on {name}");
    }
}

#[test]
fn sleeps_end_side_by_side_and_none_early() {
    on_all(50, |timer| async move {
        for millis in 0..5 {
            let asked = timer.now() + MS * millis;
            timer.sleep(MS * millis).await.unwrap();
            assert!(timer.now() >= asked, "early");
        }
    });
}

#[test]
fn a_sleep_that_is_pushed_back_ends_later() {
    on_all(10, |timer| async move {
        let mut sleep = timer.sleep(MS * 3_600_000);
        let mut pushes = 0;
        while pushes < 3 {
            let pause = timer.timeout(MS * 2, &mut sleep).await;
            assert_eq!(pause, Err(TimeoutError::Elapsed));
            sleep.reset_after(MS * 3_600_000);
            pushes += 1;
        }
        let asked = timer.now() + MS * 2;
        sleep.reset_after(MS * 2);
        sleep.await.unwrap();
        assert!(timer.now() >= asked);
    });
}

#[test]
fn time_outs_end_what_is_slow_and_spare_what_is_not() {
    on_all(20, |timer| async move {
        let slow = timer.timeout(MS * 2, std::future::pending::<()>());
        assert_eq!(slow.await, Err(TimeoutError::Elapsed));
        let quick = timer.timeout(MS * 60_000, async { timer.sleep(MS).await.map(|()| 7) });
        assert_eq!(quick.await, Ok(Ok(7)));
    });
}

#[test]
fn an_interval_ticks_at_whole_periods() {
    async fn ticks(interval: &mut Interval) -> [Duration; 4] {
        let first = interval.tick().await.unwrap();
        let mut ticks = [Duration::ZERO; 4];
        for tick in &mut ticks {
            *tick = interval.tick().await.unwrap() - first;
        }
        ticks
    }
    on_all(10, |timer| async move {
        let mut interval = timer.interval(MS * 3).unwrap();
        let expected = [1, 2, 3, 4].map(|period| MS * 3 * period);
        assert_eq!(ticks(&mut interval).await, expected);
    });
}

#[test]
fn a_queue_is_a_stream_of_what_is_due_fed_by_other_tasks() {
    for (name, runtime) in RUNTIMES {
        let (timer, came) = (timer(), Arc::new(Mutex::new(Vec::new())));
        let mut queue = DelayQueue::new(&timer, Builder::new().shards(2)).unwrap();
        let mut all: Vec<Work> = Vec::new();
        for producer in 0..4 {
            let (timer, handle) = (timer.clone(), queue.handle());
            all.push(Box::pin(async move {
                for step in 0..25_u32 {
                    let value = producer * 25 + step;
                    let id = handle.insert(value, MS * (step % 7)).unwrap();
                    if step % 5 == 0 {
                        // Either it is cancelled, or it comes out of the queue.
                        let Some(back) = handle.cancel(id) else { continue };
                        handle.insert(back, Duration::ZERO).unwrap();
                        timer.sleep(MS).await.unwrap();
                    }
                }
            }));
        }
        let (ledger, now) = (Arc::clone(&came), timer.clone());
        all.push(Box::pin(async move {
            while let Some(expired) = queue.next().await {
                assert!(now.now() >= expired.deadline, "early");
                ledger.lock().unwrap().push(expired.value);
            }
        }));
        runtime(all);
        let mut came = came.lock().unwrap().clone();
        came.sort_unstable();
        assert_eq!(came, (0..100).collect::<Vec<_>>(), "on {name}");
        assert_eq!(timer.wheel().len(), 0);
    }
}

#[test]
fn a_task_that_is_aborted_takes_its_sleep_with_it() {
    let timer = timer();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let hour = timer.sleep(MS * 3_600_000);
    let task = runtime.spawn(hour);
    while timer.wheel().is_empty() {
        thread::yield_now();
    }
    task.abort();
    assert!(runtime.block_on(task).unwrap_err().is_cancelled());
    assert!(timer.wheel().is_empty());
    // All timers are dropped with the runtime.
    for _ in 0..100 {
        drop(runtime.spawn(timer.sleep(MS * 3_600_000)));
    }
    drop(runtime);
    assert!(timer.wheel().is_empty());
}

#[test]
fn a_sleep_may_be_begun_on_one_runtime_and_ended_on_another() {
    let timer = timer();
    let mut sleep = timer.sleep(MS * 3_600_000);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let paused = runtime.block_on(timer.timeout(MS, &mut sleep));
    assert_eq!(paused, Err(TimeoutError::Elapsed));
    drop(runtime);
    smol::block_on(async {
        assert_eq!(timer.timeout(MS, &mut sleep).await, Err(TimeoutError::Elapsed));
    });
    let asked = timer.now() + MS * 2;
    sleep.reset_after(MS * 2);
    pollster::block_on(sleep).unwrap();
    assert!(timer.now() >= asked);
}

#[test]
fn a_shutdown_ends_what_sleeps_on_any_runtime() {
    for (_, runtime) in RUNTIMES {
        let timer = timer();
        let mut all: Vec<Work> = Vec::new();
        for _ in 0..20 {
            let hour = timer.sleep(MS * 3_600_000);
            all.push(Box::pin(async {
                assert_eq!(hour.await, Err(Refusal::Closed));
            }));
        }
        let last = timer.clone();
        all.push(Box::pin(async move {
            last.sleep(MS * 3).await.unwrap();
            last.shutdown();
        }));
        runtime(all);
    }
}

#[test]
fn a_poll_by_hand_and_a_select_share_a_sleep() {
    let timer = timer();
    smol::block_on(async {
        let mut sleep = timer.sleep(MS * 5);
        let noop = &mut Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(&mut sleep).poll(noop), Poll::Pending));
        let quick = smol::future::or(async { "never" }, async { sleep.await.map_or("", |()| "x") });
        assert_eq!(quick.await, "never");
    });
    assert!(timer.wheel().is_empty(), "what loses a race is dropped");
}
