//! Loads of the cache by tasks, which wait for one another and for threads.

use crate::common::Woken;
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, Clock, ManualClock, Sweeper};
use tourbillon_cache::{Cache, CacheTimer, LoadError};

const TTL: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

type Loaded = Result<u64, LoadError<&'static str>>;
type Values = Cache<String, u64>;

/// A task that requests one key.
struct Task<'a> {
    future: Pin<Box<dyn Future<Output = Loaded> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a> Task<'a> {
    fn new(
        cache: &'a Values,
        load: impl Future<Output = Result<(u64, Duration), &'static str>> + 'a,
    ) -> Self {
        Self { future: Box::pin(cache.get_or_load_async("key", load)), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Loaded> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    fn wakes(&self) -> usize {
        self.woken.times()
    }
}

fn cache() -> (Values, Sweeper<CacheTimer<String>>, ManualClock) {
    let clock = ManualClock::new();
    let (wheel, sweeper) = Builder::new().clock(clock.clone()).build().unwrap();
    (Cache::builder(TTL).build(wheel).unwrap(), sweeper, clock)
}

/// A future that is ready at its second poll.
fn later<T: Clone>(result: T) -> impl Future<Output = T> {
    let mut polled = false;
    poll_fn(move |_| {
        if std::mem::replace(&mut polled, true) {
            Poll::Ready(result.clone())
        } else {
            Poll::Pending
        }
    })
}

async fn not_polled() -> Result<(u64, Duration), &'static str> {
    panic!("another task loads")
}

#[test]
fn tasks_that_miss_together_load_once() {
    let (cache, _sweeper, clock) = cache();
    let mut first = Task::new(&cache, later(Ok((7, SECOND))));
    assert!(first.poll().is_pending());
    let mut others: Vec<_> = (0..3).map(|_| Task::new(&cache, not_polled())).collect();
    for other in &mut others {
        assert!(other.poll().is_pending() && other.poll().is_pending());
    }
    assert_eq!(first.poll(), Poll::Ready(Ok(7)));
    for mut other in others {
        assert_eq!((other.wakes(), other.poll()), (1, Poll::Ready(Ok(7))));
    }
    assert_eq!(cache.deadline("key"), Some(clock.now() + SECOND), "it says how long it lives");
    assert_eq!(Task::new(&cache, not_polled()).poll(), Poll::Ready(Ok(7)));
    let stats = cache.stats();
    assert_eq!((stats.loads, stats.loaded, stats.hits, stats.misses), (1, 1, 4, 1));
}

#[test]
fn who_waited_shares_an_error_and_the_next_loads_anew() {
    let (cache, _sweeper, _) = cache();
    let down = || Err(LoadError::Failed(Arc::new("down")));
    let (mut first, mut other) =
        (Task::new(&cache, later(Err("down"))), Task::new(&cache, not_polled()));
    assert!(first.poll().is_pending() && other.poll().is_pending());
    assert_eq!((first.poll(), other.poll()), (Poll::Ready(down()), Poll::Ready(down())));
    assert_eq!(Task::new(&cache, ready(Ok((8, SECOND)))).poll(), Poll::Ready(Ok(8)));
}

#[test]
fn a_load_that_is_dropped_is_taken_over_by_one_who_waits() {
    let (cache, _sweeper, _) = cache();
    let mut first = Task::new(&cache, pending());
    let mut second = Task::new(&cache, later(Ok((2, SECOND))));
    let mut third = Task::new(&cache, not_polled());
    assert!(first.poll().is_pending() && second.poll().is_pending() && third.poll().is_pending());
    drop(first);
    assert_eq!((second.wakes(), third.wakes()), (1, 1));
    assert!(second.poll().is_pending() && third.poll().is_pending());
    assert_eq!((second.poll(), third.poll()), (Poll::Ready(Ok(2)), Poll::Ready(Ok(2))));
}

/// It is dropped because a future beside it panicked.
#[test]
fn a_load_that_is_dropped_by_anothers_panic_has_not_panicked() {
    let (cache, _sweeper, _) = cache();
    let mut first = Task::new(&cache, pending());
    let mut second = Task::new(&cache, ready(Ok((2, SECOND))));
    assert!(first.poll().is_pending() && second.poll().is_pending());
    let beside = catch_unwind(AssertUnwindSafe(|| {
        let _dropped = first;
        panic!("as it was asked to");
    }));
    assert!(beside.is_err());
    assert_eq!((second.wakes(), second.poll()), (1, Poll::Ready(Ok(2))));
}

#[test]
fn who_no_longer_waits_is_not_woken() {
    let (cache, _sweeper, _) = cache();
    let mut first = Task::new(&cache, later(Ok((1, SECOND))));
    let mut other = Task::new(&cache, not_polled());
    assert!(first.poll().is_pending() && other.poll().is_pending());
    let woken = Arc::clone(&other.woken);
    drop(other);
    assert_eq!(Arc::strong_count(&woken), 1, "its waker has gone with it");
    assert_eq!(first.poll(), Poll::Ready(Ok(1)));
    assert_eq!(woken.times(), 0);
}

#[test]
fn a_panic_is_its_callers_and_one_of_the_others_loads() {
    let (cache, _sweeper, _) = cache();
    let mut polled = false;
    let panics = poll_fn(|_| {
        assert!(!std::mem::replace(&mut polled, true), "as it was asked to");
        Poll::Pending
    });
    let mut first = Task::new(&cache, panics);
    let mut other = Task::new(&cache, ready(Ok((7, SECOND))));
    assert!(first.poll().is_pending() && other.poll().is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
    assert_eq!((other.wakes(), other.poll()), (1, Poll::Ready(Ok(7))));
}

/// One waker panics. The others are woken nevertheless.
#[test]
fn a_waker_that_panics_harms_no_other() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("as it was asked to");
        }
    }
    let (cache, _sweeper, _) = cache();
    let mut first = Task::new(&cache, later(Ok((1, SECOND))));
    assert!(first.poll().is_pending());
    let mut others: Vec<_> = (0..8).map(|_| Task::new(&cache, not_polled())).collect();
    let panics = Waker::from(Arc::new(Panics));
    for (number, other) in others.iter_mut().enumerate() {
        match number {
            4 => {
                let mut context = Context::from_waker(&panics);
                assert!(other.future.as_mut().poll(&mut context).is_pending());
            }
            _ => assert!(other.poll().is_pending()),
        }
    }
    assert_eq!(first.poll(), Poll::Ready(Ok(1)));
    let woken: usize = others.iter().map(Task::wakes).sum();
    assert_eq!(woken, 7);
    assert!(others.into_iter().all(|mut other| other.poll() == Poll::Ready(Ok(1))));
}

#[test]
fn an_insert_overtakes_the_load_of_a_task() {
    let (cache, _sweeper, _) = cache();
    let mut first = Task::new(&cache, later(Ok((1, SECOND))));
    assert!(first.poll().is_pending());
    cache.insert(String::from("key"), 2).unwrap();
    assert_eq!(first.poll(), Poll::Ready(Ok(1)));
    assert_eq!(cache.get("key"), Some(2));
}

#[test]
fn a_value_that_cannot_be_kept_is_for_all_who_wait() {
    let (cache, _sweeper, _) = cache();
    let (mut first, mut other) =
        (Task::new(&cache, later(Ok((1, Duration::ZERO)))), Task::new(&cache, not_polled()));
    assert!(first.poll().is_pending() && other.poll().is_pending());
    assert_eq!((first.poll(), other.poll()), (Poll::Ready(Ok(1)), Poll::Ready(Ok(1))));
    cache.shutdown();
    assert_eq!(Task::new(&cache, ready(Ok((2, SECOND)))).poll(), Poll::Ready(Ok(2)));
    assert_eq!((cache.get("key"), cache.stats().loads), (None, 2));
}

#[test]
fn a_task_waits_for_a_thread_and_a_thread_for_a_task() {
    let (cache, _sweeper, _) = cache();
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let by_thread = &cache;
        let loads = move || {
            by_thread.get_or_load("key", || {
                begin.send(()).unwrap();
                ended.recv().unwrap();
                Ok::<_, &str>(1)
            })
        };
        let thread = scope.spawn(loads);
        begun.recv().unwrap();
        let mut task = Task::new(&cache, not_polled());
        assert!(task.poll().is_pending());
        end.send(()).unwrap();
        assert_eq!(thread.join().unwrap(), Ok(1));
        assert_eq!((task.wakes(), task.poll()), (1, Poll::Ready(Ok(1))));
    });
    cache.clear();
    let mut task = Task::new(&cache, later(Ok((2, SECOND))));
    assert!(task.poll().is_pending());
    thread::scope(|scope| {
        let thread = scope.spawn(|| cache.get_or_load("key", || Ok::<_, &str>(3)));
        // It waits, or is too late to wait.
        thread::yield_now();
        assert_eq!(task.poll(), Poll::Ready(Ok(2)));
        assert_eq!(thread.join().unwrap(), Ok(2));
    });
}

/// Tasks on threads of their own. Some of them give up. Each load belongs to one task.
#[test]
fn tasks_on_many_threads_lose_no_wake_up() {
    const THREADS: usize = 4;
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let cache = Cache::<String, u64>::builder(TTL).build(wheel).unwrap();
    let barrier = Barrier::new(THREADS);
    for round in 0..500_u64 {
        thread::scope(|scope| {
            for number in 0..THREADS {
                let (cache, barrier) = (&cache, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let load = later_woken(Ok::<_, &str>((round, SECOND)));
                    let mut asks = pin!(cache.get_or_load_async("key", load));
                    if number == 0 {
                        // Polled once, and dropped.
                        let _ = asks.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                        return;
                    }
                    assert_eq!(pollster::block_on(asks), Ok(round));
                });
            }
        });
        cache.clear();
    }
}

/// Does the same as [`later`] and wakes its task.
fn later_woken<T: Clone>(result: T) -> impl Future<Output = T> {
    let mut polled = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(result.clone());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
}
