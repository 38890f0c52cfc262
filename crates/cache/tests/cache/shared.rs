//! Loads that belong to their keys and continue after their callers are dropped.

use crate::common::Woken;
use crate::rig::{Rig, TTL};
use std::future::{Future, pending, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tourbillon::{Builder, ManualClock};
use tourbillon_cache::{Cache, Cause, LoadError, Loaded};

const MINUTE: Duration = Duration::from_secs(60);

type Answer = Result<u64, LoadError<&'static str>>;

/// A load that ends on command.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<Shut>>);

#[derive(Default)]
struct Shut {
    output: Option<Result<u64, &'static str>>,
    panics: bool,
    waker: Option<Waker>,
    polls: usize,
}

impl Gate {
    fn load(&self) -> impl Future<Output = Result<u64, &'static str>> + Send + 'static {
        let gate = self.clone();
        poll_fn(move |context| {
            let mut shut = gate.0.lock().unwrap();
            shut.polls += 1;
            shut.waker = Some(context.waker().clone());
            let (output, panics) = (shut.output.take(), shut.panics);
            drop(shut);
            assert!(!panics, "as it was asked to");
            output.map_or(Poll::Pending, Poll::Ready)
        })
    }

    fn open(&self, output: Result<u64, &'static str>) {
        self.0.lock().unwrap().output = Some(output);
        self.wake();
    }

    fn wake(&self) {
        let waker = self.0.lock().unwrap().waker.clone();
        waker.unwrap().wake();
    }

    fn polls(&self) -> usize {
        self.0.lock().unwrap().polls
    }

    /// Returns `true` if a load of it exists.
    fn is_held(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// A task that requests key 1.
struct Task<'a> {
    future: Pin<Box<dyn Future<Output = Answer> + 'a>>,
    woken: Arc<Woken>,
}

impl<'a> Task<'a> {
    fn new<T: Into<Loaded<u64>> + 'a>(
        cache: &'a Cache<u32, u64>,
        load: impl Future<Output = Result<T, &'static str>> + Send + 'static,
    ) -> Self {
        Self { future: Box::pin(cache.get_or_load_shared(&1, load)), woken: Arc::default() }
    }

    fn poll(&mut self) -> Poll<Answer> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }
}

async fn unneeded() -> Result<u64, &'static str> {
    panic!("there is a load already")
}

fn rig() -> Rig {
    Rig::new(|builder| builder)
}

#[test]
fn callers_that_do_not_wait_for_long_fill_the_cache_together() {
    let (rig, gate) = (rig(), Gate::default());
    let mut first = Task::new(&rig.cache, gate.load());
    assert!(first.poll().is_pending());
    drop(first);
    for _ in 0..3 {
        gate.wake();
        let mut next = Task::new(&rig.cache, unneeded());
        assert!(next.poll().is_pending());
    }
    assert_eq!(gate.polls(), 4, "each goes on");
    gate.open(Ok(10));
    assert_eq!(Task::new(&rig.cache, unneeded()).poll(), Poll::Ready(Ok(10)));
    assert_eq!((rig.cache.get(&1), gate.is_held()), (Some(10), false));
    let stats = rig.cache.stats();
    assert_eq!((stats.loads, stats.loaded), (1, 1));
    assert_eq!(rig.wheel.len(), 1, "nothing lingers");
}

#[test]
fn all_who_wait_are_woken_and_served() {
    let (rig, gate) = (rig(), Gate::default());
    let mut tasks: Vec<_> = (0..4).map(|_| Task::new(&rig.cache, gate.load())).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    assert_eq!(gate.polls(), 1, "it is not polled before it asks for that");
    gate.open(Ok(10));
    assert!(tasks.iter().all(|task| task.woken.times() == 1));
    for mut task in tasks {
        assert_eq!(task.poll(), Poll::Ready(Ok(10)));
    }
    let stats = rig.cache.stats();
    assert_eq!((stats.loads, stats.misses, stats.hits), (1, 1, 3));
}

/// The dropped task was woken to poll the load, and a later one found nothing to poll.
#[test]
fn a_caller_that_is_dropped_leaves_the_load_to_another() {
    let (rig, gate) = (rig(), Gate::default());
    let mut first = Task::new(&rig.cache, gate.load());
    let mut second = Task::new(&rig.cache, unneeded());
    assert!(first.poll().is_pending() && second.poll().is_pending());
    gate.open(Ok(10));
    assert_eq!((first.woken.times(), second.woken.times()), (1, 1));
    drop(first);
    drop(second);
    // That wake-up was not used.
    let mut third = Task::new(&rig.cache, unneeded());
    assert_eq!(third.poll(), Poll::Ready(Ok(10)));
}

/// The caller arrives during a poll that has already woken the waiting tasks.
#[test]
fn a_caller_that_finds_nothing_to_poll_is_woken_when_there_is() {
    let rig = rig();
    let (begin, begun) = mpsc::channel();
    let (come, came) = mpsc::channel();
    let mut polls = 0;
    let load = poll_fn(move |context| {
        polls += 1;
        if polls == 2 {
            return Poll::Ready(Ok(10));
        }
        context.waker().wake_by_ref();
        begin.send(()).unwrap();
        came.recv().unwrap();
        Poll::Pending
    });
    thread::scope(|scope| {
        let cache = &rig.cache;
        let second = scope.spawn(move || {
            begun.recv().unwrap();
            let mut task = Task::new(cache, unneeded());
            assert!(task.poll().is_pending());
            assert_eq!(task.woken.times(), 0);
            come.send(()).unwrap();
            while task.woken.times() == 0 {
                thread::yield_now();
            }
            assert_eq!(task.poll(), Poll::Ready(Ok(10)));
        });
        let mut first = Task::new(&rig.cache, load);
        assert!(first.poll().is_pending());
        drop(first);
        second.join().unwrap();
    });
}

#[test]
fn a_load_fails_for_all_who_wait() {
    let (rig, gate) = (rig(), Gate::default());
    let mut tasks: Vec<_> = (0..3).map(|_| Task::new(&rig.cache, gate.load())).collect();
    assert!(tasks.iter_mut().all(|task| task.poll().is_pending()));
    gate.open(Err("down"));
    let down = Poll::Ready(Err(LoadError::Failed(Arc::new("down"))));
    assert!(tasks.into_iter().all(|mut task| task.poll() == down));
    assert!(!gate.is_held() && rig.wheel.is_empty());
    assert_eq!(Task::new(&rig.cache, ready(Ok((11, TTL)))).poll(), Poll::Ready(Ok(11)));
}

type Change = fn(&Cache<u32, u64>);

const CHANGES: [Change; 4] = [
    |cache| cache.insert(1, 7).unwrap(),
    |cache| assert_eq!(cache.remove(&1), None),
    Cache::clear,
    |cache| cache.retain(|_, _| true),
];

#[test]
fn a_load_that_rests_goes_with_its_place() {
    for change in CHANGES {
        let (rig, gate) = (rig(), Gate::default());
        assert!(Task::new(&rig.cache, gate.load()).poll().is_pending());
        assert!(gate.is_held());
        change(&rig.cache);
        assert!(!gate.is_held());
    }
}

#[test]
fn a_load_that_was_overtaken_is_for_those_who_wait_alone() {
    for change in CHANGES {
        let (mut rig, gate) = (rig(), Gate::default());
        let mut waits = Task::new(&rig.cache, gate.load());
        assert!(waits.poll().is_pending());
        change(&rig.cache);
        let written = rig.cache.get(&1);
        gate.open(Ok(10));
        assert_eq!((waits.poll(), gate.is_held()), (Poll::Ready(Ok(10)), false));
        drop(waits);
        assert_eq!(rig.cache.get(&1), written);
        rig.advance(TTL);
        assert!(rig.wheel.is_empty(), "nothing lingers");
    }
}

/// Values held by the load may use the cache when they are dropped.
#[test]
fn a_load_is_dropped_under_no_lock() {
    struct Uses(Cache<u32, u64>, Arc<AtomicUsize>);
    impl Drop for Uses {
        fn drop(&mut self) {
            (0..100).for_each(|key| self.0.insert(key, 20).unwrap());
            self.1.fetch_add(1, SeqCst);
        }
    }
    for change in CHANGES {
        let (rig, dropped) = (rig(), Arc::new(AtomicUsize::new(0)));
        let uses = Uses(rig.cache.clone(), Arc::clone(&dropped));
        let load = async move {
            let _uses = &uses;
            pending::<Result<u64, &'static str>>().await
        };
        assert!(Task::new(&rig.cache, load).poll().is_pending());
        change(&rig.cache);
        assert_eq!(dropped.load(SeqCst), 1);
    }
}

#[test]
fn a_load_whose_drop_panics_keeps_nothing_from_its_overtaker() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            resume_unwind(Box::new("a drop that panics"));
        }
    }
    let rig = Rig::new(|builder| builder.refresh_ahead(TTL / 2));
    rig.cache.insert(1, 10).unwrap();
    rig.clock.advance(TTL / 2);
    let panics = Panics;
    let load = async move {
        let _panics = &panics;
        pending::<Result<u64, &'static str>>().await
    };
    assert_eq!(Task::new(&rig.cache, load).poll(), Poll::Ready(Ok(10)));
    rig.cache.insert(1, 11).unwrap();
    assert_eq!(rig.told(), [(1, 10, Cause::Replaced)]);
    assert_eq!(rig.cache.get(&1), Some(11));
}

/// A load whose check finds no room in the wheel does not stay either.
#[test]
fn a_load_that_cannot_be_checked_again_ends_with_its_last_caller() {
    let clock = ManualClock::new();
    let builder = Builder::new().clock(clock.clone()).capacity(1);
    let (wheel, mut sweeper) = builder.build().unwrap();
    let (cache, gate) = (Cache::builder(TTL).build(wheel).unwrap(), Gate::default());
    let mut waits = Task::new(&cache, gate.load());
    assert!(waits.poll().is_pending());
    clock.advance(MINUTE);
    let mut fired = Vec::new();
    let _ = sweeper.sweep(|timer| fired.push(timer));
    cache.insert(2, 20).unwrap();
    fired.into_iter().for_each(|timer| cache.fire(timer));
    assert!(waits.poll().is_pending() && gate.is_held());
    drop(waits);
    assert!(!gate.is_held());
}

#[test]
fn a_load_that_rests_is_dropped_after_a_minute() {
    let (mut rig, gate) = (rig(), Gate::default());
    let mut waits = Task::new(&rig.cache, gate.load());
    assert!(waits.poll().is_pending());
    for _ in 0..2 {
        rig.clock.advance(MINUTE);
        let _ = rig.sweeper.sweep(|timer| rig.cache.fire(timer));
        assert!(gate.is_held(), "a caller waits");
    }
    drop(waits);
    rig.advance(MINUTE - Duration::from_millis(1));
    assert!(gate.is_held());
    rig.advance(Duration::from_millis(1));
    assert!(!gate.is_held() && rig.wheel.is_empty());
    assert_eq!(Task::new(&rig.cache, ready(Ok(11))).poll(), Poll::Ready(Ok(11)));
}

#[test]
fn a_load_that_rests_keeps_no_cache_and_ends_with_it() {
    let (rig, gate) = (rig(), Gate::default());
    assert!(Task::new(&rig.cache, gate.load()).poll().is_pending());
    let weak = rig.cache.downgrade();
    drop(rig);
    assert!(weak.upgrade().is_none() && !gate.is_held());

    let driven = Cache::builder(TTL).spawn(Builder::new().driver()).unwrap();
    assert!(Task::new(&driven, gate.load()).poll().is_pending());
    driven.shutdown();
    assert!(!gate.is_held());
}

#[test]
fn on_a_full_wheel_a_load_is_its_callers() {
    let (wheel, _sweeper) = Builder::new().capacity(1).build().unwrap();
    let (cache, gate) = (Cache::builder(TTL).build(wheel).unwrap(), Gate::default());
    cache.insert(2, 20).unwrap();
    let mut first = Task::new(&cache, gate.load());
    assert!(first.poll().is_pending());
    gate.open(Ok(10));
    assert_eq!(first.poll(), Poll::Ready(Ok(10)));
    assert!(Task::new(&cache, gate.load()).poll().is_pending());
    assert!(!gate.is_held());
}

#[test]
fn a_second_call_goes_on_while_the_first_is_not_polled() {
    let (rig, gate) = (rig(), Gate::default());
    let mut first = Task::new(&rig.cache, gate.load());
    assert!(first.poll().is_pending());
    gate.open(Ok(10));
    assert_eq!(Task::new(&rig.cache, unneeded()).poll(), Poll::Ready(Ok(10)));
    assert_eq!(first.poll(), Poll::Ready(Ok(10)));
}

#[test]
fn all_kinds_of_calls_go_on_with_it() {
    let (rig, gate) = (rig(), Gate::default());
    for value in [10, 11] {
        assert!(Task::new(&rig.cache, gate.load()).poll().is_pending());
        gate.open(Ok(value));
        let got = match value {
            10 => rig.cache.get_or_load(&1, || -> Result<u64, &str> { panic!("it rests there") }),
            _ => pollster::block_on(rig.cache.get_or_load_async(&1, unneeded())),
        };
        assert_eq!((got, gate.is_held()), (Ok(value), false));
        rig.cache.clear();
    }
}

#[test]
fn a_thread_that_waits_goes_on_when_it_is_woken() {
    let (rig, gate) = (rig(), Gate::default());
    assert!(Task::new(&rig.cache, gate.load()).poll().is_pending());
    thread::scope(|scope| {
        let waits = scope.spawn(|| rig.cache.get_or_load(&1, || -> Result<u64, &str> { panic!() }));
        for _ in 0..100 {
            thread::yield_now();
        }
        gate.open(Ok(10));
        assert_eq!(waits.join().unwrap(), Ok(10));
    });
}

#[test]
fn a_load_that_asks_for_its_own_key_is_an_error() {
    let cache = Cache::<u32, u64>::builder(TTL).spawn(Builder::new().driver()).unwrap();
    let inside = cache.clone();
    let load = async move {
        let within = inside.get_or_load_shared(&1, unneeded()).await;
        assert_eq!(within, Err(LoadError::Recursive));
        Ok(10)
    };
    assert_eq!(pollster::block_on(cache.get_or_load_shared(&1, load)), Ok::<_, LoadError<()>>(10));
}

#[test]
fn a_panic_is_that_of_the_caller_that_polls() {
    let (rig, gate) = (rig(), Gate::default());
    let mut first = Task::new(&rig.cache, gate.load());
    let mut second = Task::new(&rig.cache, unneeded());
    let mut third = Task::new(&rig.cache, ready(Ok(30)));
    assert!(first.poll().is_pending() && second.poll().is_pending() && third.poll().is_pending());
    gate.0.lock().unwrap().panics = true;
    gate.wake();
    assert!(catch_unwind(AssertUnwindSafe(|| second.poll())).is_err());
    assert_eq!(third.poll(), Poll::Ready(Ok(30)), "its own load");
    let panicked = first.poll();
    assert_eq!(panicked, Poll::Ready(Err(LoadError::Panicked)));
    assert!(!gate.is_held());
}

/// In the refresh window all callers get the present value at once, and the next load continues.
#[test]
fn no_caller_waits_for_a_load_ahead() {
    let ahead = TTL / 2;
    let mut rig = Rig::new(|builder| builder.refresh_ahead(ahead));
    let gate = Gate::default();
    rig.cache.insert(1, 10).unwrap();
    rig.advance(TTL - ahead);
    assert_eq!(Task::new(&rig.cache, gate.load()).poll(), Poll::Ready(Ok(10)));
    assert_eq!((gate.polls(), gate.is_held()), (1, true));
    for polls in 2..5 {
        gate.wake();
        assert_eq!(Task::new(&rig.cache, unneeded()).poll(), Poll::Ready(Ok(10)));
        assert_eq!(gate.polls(), polls);
    }
    gate.open(Ok(11));
    assert_eq!(Task::new(&rig.cache, unneeded()).poll(), Poll::Ready(Ok(10)));
    assert_eq!(Task::new(&rig.cache, unneeded()).poll(), Poll::Ready(Ok(11)));
    assert_eq!((rig.cache.stats().loads, gate.is_held()), (1, false));
    // Callers wait if the value expires meanwhile.
    rig.advance(TTL - ahead);
    assert_eq!(Task::new(&rig.cache, gate.load()).poll(), Poll::Ready(Ok(11)));
    rig.advance(ahead);
    let mut waits = Task::new(&rig.cache, unneeded());
    assert!(waits.poll().is_pending());
    gate.open(Ok(12));
    assert_eq!(waits.poll(), Poll::Ready(Ok(12)));
}

/// Tasks on threads of their own. Most give up during a load that another thread wakes. The last
/// task gets the value, and no wake-up is lost.
#[test]
fn callers_on_many_threads_lose_no_wake_up() {
    const THREADS: u64 = 4;
    let (wheel, _sweeper) = Builder::new().build().unwrap();
    let cache = Cache::<u32, u64>::builder(MINUTE).build(wheel.clone()).unwrap();
    let barrier = Barrier::new(usize::try_from(THREADS).unwrap());
    let (send, wakers) = mpsc::channel::<Waker>();
    let ask = |number: u64, round: u64, send: mpsc::Sender<Waker>| {
        let mut left = 3;
        let load = poll_fn(move |context| {
            left -= 1;
            let waker = context.waker().clone();
            // By this thread or by another one.
            if number % 2 == 0 {
                waker.wake();
            } else {
                send.send(waker).unwrap();
            }
            if left == 0 { Poll::Ready(Ok::<_, &str>(round)) } else { Poll::Pending }
        });
        barrier.wait();
        let mut asks = pin!(cache.get_or_load_shared(&1, load));
        if number < THREADS / 2 {
            let _ = asks.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        } else {
            assert_eq!(pollster::block_on(asks), Ok(round));
        }
    };
    thread::scope(|scope| {
        scope.spawn(move || wakers.into_iter().for_each(Waker::wake));
        for round in 0..500 {
            thread::scope(|scope| {
                for number in 0..THREADS {
                    let (ask, send) = (&ask, send.clone());
                    scope.spawn(move || ask(number, round, send));
                }
            });
            assert_eq!(cache.remove(&1), Some(round));
        }
        drop(send);
    });
    assert!(wheel.is_empty(), "nothing lingers");
}
